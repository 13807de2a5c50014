"""Region tables of brain atlases: names, hemispheres, MNI coordinates, network partitions."""

from neuro_pe.atlases._atlas import Atlas, Match
from neuro_pe.atlases._catalogue import available, find, load, recognise
from neuro_pe.atlases._partitions import read_partition

__all__ = ["Atlas", "Match", "available", "find", "load", "read_partition", "recognise"]
