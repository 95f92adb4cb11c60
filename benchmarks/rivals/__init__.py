"""The methods that Dai et al. 2014 (section 7) compare with, each by its own paper's formula.

All of them hold the training data, learn a slice of its rows at a time in batches (``learn``), and give f for new rows
(``scores``). They are written to be fast: float32 products of whole batches in BLAS, compiled loops where a method goes
example by example. What a comparison with them is fair in, and in what not, stands in each docstring.
"""
