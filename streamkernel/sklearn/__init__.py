"""The online estimators with the interface of scikit-learn, which this needs: ``pip install 'streamkernel[sklearn]'``.

Each has the online model it is made of in the attribute ``model_``: ``model_.save(path)``, ``model_.merge(other)`` and
``model_.explain_one(x)`` work as there.
"""

from streamkernel.sklearn.estimators import KernelClassifier, KernelNoveltyDetector, KernelRegressor

__all__ = ["KernelClassifier", "KernelNoveltyDetector", "KernelRegressor"]
