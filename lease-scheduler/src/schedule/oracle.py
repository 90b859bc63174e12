"""Computes the ticks of cron expressions, minute by minute, with Python's zoneinfo.

Standard input is a JSON object: `zones`, a list of [name, list of [first minute, last minute]] in
minutes since 1970, and `expressions` of five fields. Standard output is, for each zone, expression and
range, one bit for each minute of the range, least significant bit first, in whole bytes: 1 at a tick.

PYTHONTZPATH names the folder with the time zone database.
"""

import json
import sys
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

# Vixie's cron treats longer jumps as a clock that was set.
LONGEST_GAP = 180
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def parse_field(text, low, high):
    """The values of a field, and whether it contains an asterisk."""
    values = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        elif "-" in span:
            first, last = map(int, span.split("-"))
        else:
            first = last = int(span)
        values.update(range(first, last + 1, int(step or 1)))
    return values, "*" in text


class Expression:
    def __init__(self, text):
        fields = [parse_field(field, *span) for field, span in zip(text.split(), RANGES)]
        (self.minutes, star_minute), (self.hours, star_hour) = fields[:2]
        (self.days, star_day), (self.months, _), (weekdays, star_weekday) = fields[2:]
        self.weekdays = {day % 7 for day in weekdays}
        self.needs_both_days = star_day or star_weekday
        self.is_fixed = not (star_minute or star_hour)

    def fits(self, local):
        fits_day = local.day in self.days
        fits_weekday = local.isoweekday() % 7 in self.weekdays
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and (fits_day and fits_weekday if self.needs_both_days else fits_day or fits_weekday)
        )


class Fields:
    """For each value of each field, the minutes of a range that have it, as the bits of a number."""

    def __init__(self, minutes):
        self.of = {}
        for place, local in minutes:
            weekday = local.isoweekday() % 7
            for name, value in enumerate((local.minute, local.hour, local.day, local.month, weekday)):
                key = name, value
                self.of.setdefault(key, []).append(place)
        for key, places in self.of.items():
            bits = bytearray(max(places) // 8 + 1)
            for place in places:
                bits[place // 8] |= 1 << place % 8
            self.of[key] = int.from_bytes(bits, "little")

    def any(self, name, values):
        bits = 0
        for value in values:
            bits |= self.of.get((name, value), 0)
        return bits

    def ticks(self, expression):
        day, weekday = self.any(2, expression.days), self.any(4, expression.weekdays)
        days = day & weekday if expression.needs_both_days else day | weekday
        hours = self.any(0, expression.minutes) & self.any(1, expression.hours)
        return hours & days & self.any(3, expression.months)


class Range:
    """The times that the wall clock of a zone shows in each minute of a range."""

    def __init__(self, zone, first, last):
        self.length = last - first + 1
        # Starts four hours before the range, to find gaps and times that were shown before.
        minutes = range(first - 240, last + 1)
        shown = [datetime.fromtimestamp(60 * minute, zone).replace(tzinfo=None, fold=0) for minute in minutes]
        here = list(enumerate(shown[240:]))
        self.every = Fields(here)
        seen = set(shown[:240])
        firsts = []
        for place, local in here:
            if local not in seen:
                firsts.append((place, local))
                seen.add(local)
        self.firsts = Fields(firsts)
        # Minutes that the clock steps over, and the place of the next minute.
        self.left_out = []
        for place, (before, after) in enumerate(zip(shown[239:], shown[240:])):
            gap = (after - before) // timedelta(minutes=1) - 1
            if 0 < gap <= LONGEST_GAP:
                self.left_out += [(before + timedelta(minutes=n + 1), place) for n in range(gap)]

    def ticks(self, expression):
        if not expression.is_fixed:
            return self.every.ticks(expression)
        ticks = self.firsts.ticks(expression)
        for local, place in self.left_out:
            if expression.fits(local):
                ticks |= 1 << place
        return ticks


def main():
    asked = json.load(sys.stdin)
    expressions = [Expression(text) for text in asked["expressions"]]
    for name, ranges in asked["zones"]:
        ranges = [Range(ZoneInfo(name), first, last) for first, last in ranges]
        for expression in expressions:
            for span in ranges:
                bits = span.ticks(expression).to_bytes((span.length + 7) // 8, "little")
                sys.stdout.buffer.write(bits)


main()
