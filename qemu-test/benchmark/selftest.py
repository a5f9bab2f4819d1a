# SPDX-License-Identifier: GPL-2.0
"""The arithmetic of the benchmark: medians, spread, ratios, bars, history, reports. Run by
qemu-test/lint."""

import os
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

os.environ.setdefault("FERROCE_DIR", "/")

import bars  # noqa: E402
import history  # noqa: E402
import lanes  # noqa: E402
import plot  # noqa: E402
import report  # noqa: E402
import rows  # noqa: E402
import stats  # noqa: E402
import tools  # noqa: E402


def records(driver, values, metric="send_64k_1qp_MBps", lane="instr"):
    """What the guest tells in so many rounds."""
    return [
        {"lane": lane, "metric": metric, "driver": driver, "value": value, "round": number}
        for number, value in enumerate(values, 1)
    ]


class Summary(unittest.TestCase):
    """Medians, spread, ratios."""

    def test_median_of_odd_and_even_rounds(self):
        figures = stats.summarise(records("ferroce", [500, 700, 600]) + records("rxe", [100, 200]))
        self.assertEqual(figures["instr_send_64k_1qp_MBps_ferroce"], 600)
        self.assertEqual(figures["instr_send_64k_1qp_MBps_rxe"], 150)

    def test_ratio_is_of_the_medians(self):
        # the mean of the ratios of the rounds would be 5.5
        figures = stats.summarise(records("ferroce", [100, 100, 1000]) + records("rxe", [100, 10, 200]))
        self.assertEqual(figures["instr_send_64k_1qp_MBps_ratio"], 1)

    def test_spread_is_relative_to_the_median(self):
        self.assertAlmostEqual(stats.spread([90, 100, 120]), 0.3)
        self.assertEqual(stats.spread([5]), 0)
        self.assertEqual(stats.spread([0, 0]), 0)

    def test_no_ratio_without_both_drivers(self):
        figures = stats.summarise(records("ferroce", [1]) + records("host", [1], "tcp_MBps"))
        self.assertFalse([name for name in figures if name.endswith("_ratio")])

    def test_failures_do_not_count(self):
        figures = stats.summarise([*records("ferroce", [4]), {"lane": "instr", "error": "x"}])
        self.assertEqual(figures["instr_send_64k_1qp_MBps_ferroce"], 4)

    def test_lanes_do_not_mix(self):
        figures = stats.summarise(records("ferroce", [4]) + records("ferroce", [8], lane="real"))
        self.assertEqual(figures["real_send_64k_1qp_MBps_ferroce"], 8)


class Bars(unittest.TestCase):
    """Met, not met, not measured."""

    def test_at_least_and_at_most(self):
        self.assertTrue(bars.Bar("x", 5).met({"x": 5.0}))
        self.assertFalse(bars.Bar("x", 5).met({"x": 4.99}))
        self.assertTrue(bars.Bar("x", 0.6, at_most=True).met({"x": 0.6}))
        self.assertFalse(bars.Bar("x", 0.6, at_most=True).met({"x": 0.61}))
        self.assertIsNone(bars.Bar("x", 5).met({}))

    def test_each_bar_has_a_row_that_measures_it(self):
        for bar in bars.BARS:
            lane = next((name for name in bars.LONGEST_FIRST if bar.figure.startswith(f"{name}_")), "host")
            stem = bar.figure.removeprefix(f"{lane}_")
            found = [row for row in rows.ROWS.values()
                     if lane in row.lanes and stem.startswith(f"{row.name}_")]
            self.assertTrue(found, bar.figure)

    def test_latency_must_be_less(self):
        for bar in bars.BARS:
            self.assertEqual(bar.at_most, "_us_" in bar.figure or bar.figure.endswith("_ns"), bar.figure)

    def test_part_of_tcp_is_of_the_same_lane(self):
        figures = {"real_write_64k_1qp_MBps_ferroce": 300, "real_tcp_MBps_host": 500,
                   "real_default_write_64k_1qp_MBps_ferroce": 100, "real_default_tcp_MBps_host": 1000}
        bars.of_tcp(figures)
        self.assertEqual(figures["real_write_64k_1qp_MBps_of_tcp_ratio"], 0.6)
        self.assertEqual(figures["real_default_write_64k_1qp_MBps_of_tcp_ratio"], 0.1)

    def test_the_account_of_all(self):
        lines = report.bar_lines({"instr_send_64k_1qp_MBps_ratio": 5.1, "instr_send_64_1qp_per_s_ratio": 1})
        self.assertIn("1 met, 1 not met", lines[-1])
        self.assertTrue(any(line.startswith("  NOT MET instr_send_64_1qp") for line in lines))


class Rows(unittest.TestCase):
    """What words select."""

    def test_groups_patterns_and_names(self):
        self.assertEqual([row.name for row in rows.select(["tcp"])], ["tcp"])
        self.assertEqual(len(rows.select(["quick"])), len(rows.QUICK) + 1)
        self.assertTrue(all(row.name.startswith("send_") for row in rows.select(["send_*"])))
        self.assertEqual(len(rows.select([])), len(rows.ROWS))
        with self.assertRaises(ValueError):
            rows.select(["nothing"])

    def test_names_are_unique_and_quick_rows_exist(self):
        self.assertEqual(len(rows.all_rows()), len(rows.ROWS))
        self.assertFalse(set(rows.QUICK) - set(rows.ROWS))

    def test_every_row_has_a_lane_and_a_way(self):
        for row in rows.ROWS.values():
            self.assertTrue(set(row.lanes) <= set(lanes.LANES))
            self.assertTrue(row.lanes[0] in ("host", "interop") or hasattr(tools.Bench, row.kind), row.name)

    def test_units(self):
        self.assertTrue(rows.less_is_better("latency_send_8_p50_us"))
        self.assertFalse(rows.less_is_better("send_64_1qp_per_s"))
        self.assertEqual(report.unit("send_64_1qp_per_s"), "/s")


class Reports(unittest.TestCase):
    """What the programs print."""

    def test_perftest(self):
        said = """ local address: LID 0000
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      300              137.35             136.12              0.002178
------"""
        self.assertEqual(tools.report_row(said)[3:], [136.12, 0.002178])
        with self.assertRaises(tools.Failed):
            tools.report_row("Couldn't connect")

    def test_cmtime(self):
        said = "step avg total\nfull connect          470      47045          0          0      46202      11015\n"
        self.assertAlmostEqual(tools.connect_seconds(said), 0.047045)
        with self.assertRaises(tools.Failed):
            tools.connect_seconds("")


class Past(unittest.TestCase):
    """The history file and what it tells."""

    def test_round_trip_and_a_cut_line(self):
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "runs")
            history.append(file, history.entry(5, {"a": 1, "a_spread": 0.1}))
            with open(file, "a", encoding="utf-8") as out:
                out.write('{"commit": "cut')
            runs = history.load(file)
        self.assertEqual([run["figures"] for run in runs], [{"a": 1}])

    def test_only_what_repeats_and_moved(self):
        runs = [{"commit": "old", "figures": {"instr_x_ferroce": 50}},
                {"commit": "new", "figures": {"instr_x_ferroce": 100, "real_x_ferroce": 100}}]
        now = {"instr_x_ferroce": 110, "real_x_ferroce": 200, "instr_y_ferroce": 1}
        self.assertEqual(history.changes(runs, now), [("instr_x_ferroce", "new", 100, 110)])
        self.assertEqual(history.changes(runs, {"instr_x_ferroce": 101}), [])


class Pictures(unittest.TestCase):
    """They are XML, and the axis is right."""

    def test_scale(self):
        scale = plot.Scale([0.5, 8], 0, 100)
        self.assertAlmostEqual(scale.at(0.5), 0)
        self.assertAlmostEqual(scale.at(2), 50)

    def test_well_formed(self):
        xml.fromstring(plot.ratios("a < b", [("x", 5, False, 6), ("y", 0.1, True, None)]))
        xml.fromstring(plot.history("t", ["a", "b"], {"x": [None, 2], "y": [1, 3], "z": [None, None]}))


if __name__ == "__main__":
    unittest.main()
