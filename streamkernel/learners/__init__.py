"""Learners: values for the parameter `learner` of the estimators, and the code that they share.

Examples
--------
>>> from streamkernel import KernelClassifier, learners, rules
>>> KernelClassifier(learner=learners.DSG(rule=rules.DSG(), batch_size=8)).learner_.features_per_seed
256
"""

from streamkernel.learners.options import DSG, Newton

__all__ = ["DSG", "Newton"]
