"""Merging of models that learned separately: with equal seeds their features are equal, so coefficients can be merged.

For replicas i with n_i events each since they were the same model 0, and n = Σ n_i:

    first order     α = Σ (n_i/n) α_i, so f(x) = Σ (n_i/n) f_i(x) for all x
    second order    A = A_0 + Σ (A_i - A_0),   w = A⁻¹(A_0w_0 + Σ (A_iw_i - A_0w_0))

The second line equals the result of one model that learned all events, if the loss is the square loss and nothing is
forgotten. For models without a common base, A_0 = λI and n_i counts all their events.
"""
