"""Merging of models that learned separately: with equal seeds their features are equal, so coefficients can be merged.

For replicas i with n_i events each since they were the same model 0, and n = Σ n_i:

    first order     α = Σ (n_i/n) α_i, so f(x) = Σ (n_i/n) f_i(x) for all x
    second order    A = A_0 + Σ (A_i - A_0),   w = A⁻¹(b_0 + Σ (b_i - b_0) - cs)

A regressor learns each target y less the running mean c_t of the targets. So its Newton function has the moments
Aw = Σ wℓ''φ(y - c_t). With the sums m = Σ wℓ''c_tφ and s = Σ wℓ''φ, b = Aw + m are the moments of the targets
themselves, and the merged function is for the targets less the mean c of all. A classifier has no c.

If the loss is the square loss and nothing is forgotten, w is the ridge regression of all events on y - c, whichever
model learned which event. One model that learned all of them differs by its own c_t. For models without a common base,
A_0 = λI and n_i counts all their events.
"""
