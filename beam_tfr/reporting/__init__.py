"""Makes one HTML page that shows what is in a dataset, and what deserves a look.

measuring      turns the contents of all shards into histograms, extremes and samples
odd_labels     finds labels that differ from nearly all others in a folder
neighbors      finds rows whose class differs from that of the most similar rows
mask_samples   looks at values, margins and edges of some masks
unlike_boxes   finds boxes whose size is typical of another class
unlike_looks   finds images that look least like their class
equal_rows     finds equal rows of a table
finding        describes something that deserves a look: a sentence, severity, evidence
findings       lists all findings
samples        reads records by their numbers, and draws them with boxes and masks
beside         draws records next to their sources
refused        lists rejects, with pictures of their sources
rejects_sheet  shows rejects as lines and as a contact sheet, for `inspect --rejects`
charts         draws histograms, bars and a heat map as SVG
facts          collects all of this for the template
page           fills in page.html, with page.css and page.js
"""

from beam_tfr.reporting.page import ReportPage as ReportPage
from beam_tfr.reporting.page import report as report
from beam_tfr.reporting.page import write_report as write_report

__all__ = ["ReportPage", "report", "write_report"]
