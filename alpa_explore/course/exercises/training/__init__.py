"""Exercises of lessons 08 to 14, in this order.

schedules, memory, attention, experts, running, accuracy, your_own
"""
