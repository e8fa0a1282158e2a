"""Exercises of lessons 00 to 07, in this order.

tour, capture, cluster, collectives, layering, sharding, formulations, pipeline
"""
