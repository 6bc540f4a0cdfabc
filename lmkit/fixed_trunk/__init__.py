"""Training only the head: any head on the stored contexts of a fixed trunk. The contexts are data
(`corpus`, `store`), the trunk is the identity map (`trunk`), and training, evaluation and analyses
are those of any run.
"""
