"""The head alone: any head on the stored contexts of a trunk that does not learn.

A house of its own, which uses the chain. The contexts are data (`corpus`, `store`), the trunk is
the identity (`trunk`), and training, evaluation and analyses are those of any run.
"""
