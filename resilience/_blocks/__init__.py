"""The policies around a block instead of a function: loops of attempts, limits, slots.

What stands in a `with` statement may be entered in one task and left in another, or in
another thread: fixtures and framework dependencies do so. So whatever a block puts into
its context can be switched off from elsewhere, and nothing is put back where it was not
taken from.
"""
