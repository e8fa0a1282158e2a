"""Transformers of images. In the order to read them:

blocks   patches, attention and MLP, which both share
vit      the vision transformer (arXiv 2010.11929): patches -> class
dit      the diffusion transformer (arXiv 2212.09748): noised latents, step and class -> noise and variance
"""
