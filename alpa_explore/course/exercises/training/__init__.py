"""Exercises of lessons 08 to 15, in this order.

schedules, memory, attention, experts, running, accuracy, your_own, block
"""
