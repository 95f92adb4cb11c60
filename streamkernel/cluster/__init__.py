"""One run on many machines: replicas of a model learn rounds of events on a Ray cluster, and are merged."""

from streamkernel.cluster.runner import ClusterRunner

__all__ = ["ClusterRunner"]
