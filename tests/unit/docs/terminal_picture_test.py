# SPDX-License-Identifier: Apache-2.0
"""The README's picture of a terminal is what scripts/render-terminal makes of its recording."""

import importlib.machinery
import importlib.util
import json
import pathlib
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[3]
LOADER = importlib.machinery.SourceFileLoader("render_terminal", str(ROOT / "scripts/render-terminal"))
renderer = importlib.util.module_from_spec(importlib.util.spec_from_loader(LOADER.name, LOADER))
LOADER.exec_module(renderer)


def cast(*events, version=2):
    header = {"version": version, "width": 80, "height": 24, "title": "a test"}
    return "\n".join(json.dumps(line) for line in (header, *([at, "o", text] for at, text in events)))


def shown(text):
    screen = renderer.Screen()
    screen.feed(text)
    return [screen.runs(row) for row in range(len(screen.rows))]


class TerminalPicture(unittest.TestCase):
    def test_the_picture_is_rendered_from_the_recording(self):
        self.assertTrue(renderer.SVG.read_text() == renderer.render(renderer.CAST.read_text()),
                        "docs/images/run.svg is out of date: run scripts/render-terminal")

    def test_the_picture_is_small_and_well_formed(self):
        self.assertLess(renderer.SVG.stat().st_size, 60_000)
        xml.etree.ElementTree.fromstring(renderer.SVG.read_text())

    def test_the_recording_shows_what_the_readme_claims(self):
        _, events = renderer.read_cast(renderer.CAST.read_text())
        text = "".join(data for _, data in events)
        self.assertIn("SIGKILL", text)
        self.assertIn("0 steps lost", text)
        hashes = renderer.re.findall(r"weights hash +([0-9a-f]{16})", text)
        self.assertEqual(len(hashes), 2)
        self.assertEqual(hashes[0], hashes[1])

    def test_lines_are_redrawn_and_erased(self):
        self.assertEqual(shown("step 1\rstep 2\r\ndone\r\n"), [((0, 0, "step 2"),), ((0, 0, "done"),), ()])
        self.assertEqual(shown("a long line\rshort\x1b[K"), [((0, 0, "short"),)])

    def test_a_recording_keeps_some_redraws_of_the_whole_screen(self):
        def drawn(at, step, above=2):
            return [[at, f"\x1b[{above}A\rname\x1b[K\r\n"], [at, f"\rstep {step}\x1b[K\r\n"]]
        first = [[0.0, "name\r\n"], [0.0, "\rstep 0\r\n"]]
        news = [[9.2, "\x1b[2A\r\x1b[Ja worker failed\r\n"], [9.2, "\rname\r\n"], [9.2, "\rstep 4\r\n"]]
        events = [*first, *drawn(8, 1), *drawn(8.5, 2), *drawn(9, 3), *news, *drawn(10, 5)]
        kept = renderer.thin(events)
        self.assertEqual(kept, [*first, *drawn(8, 1), *news, *drawn(10, 5)])
        whole, thinned = (shown("".join(text for _, text in some)) for some in (events, kept))
        self.assertEqual(whole, thinned)

    def test_runs_are_cut_at_colours_and_gaps(self):
        self.assertEqual(shown("[\x1b[32m==\x1b[0m  ] 1  of 2"),
                         [((0, 0, "["), (1, 32, "=="), (5, 0, "] 1"), (10, 0, "of 2"))])
        self.assertEqual(shown("\x1b[36m$\x1b[0m run"), [((0, 36, "$"), (2, 0, "run"))])

    def test_a_state_that_passes_is_hidden_where_nothing_moves(self):
        picture = renderer.render(cast((0, "first & last"), (1, "\r\x1b[Ksecond"), (2, "\r\x1b[Kthird")))
        hidden = [line for line in picture.splitlines() if 'visibility="hidden"' in line]
        self.assertEqual(len(hidden), 2)
        self.assertIn("first &amp; last", hidden[0])
        self.assertTrue(any("third" in line and 'visibility="hidden"' not in line for line in picture.splitlines()))

    def test_other_versions_are_refused(self):
        with self.assertRaises(SystemExit):
            renderer.render(cast((0, "x"), version=3))


if __name__ == "__main__":
    unittest.main()
