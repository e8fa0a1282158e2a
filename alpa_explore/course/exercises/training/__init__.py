"""Exercises of lessons 08 to 17, in this order.

schedules, memory, attention, experts, running, accuracy, your_own, block, hidden, which_layout
"""
