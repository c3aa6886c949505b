"""Decides on the calendar and writes a reservation without overbooking."""
