"""DSPDC: primal and dual coordinate steps with a certified duality gap."""
