"""Makes one HTML page that shows what is in a dataset, and what deserves a look.

measuring      the contents of all shards become histograms, extremes and samples odd_labels
labels that differ from those of all neighbors in a folder neighbors      labels that differ from
those of the most similar rows mask_samples   values, margins and fit of some masks unlike_boxes
boxes with the size of another class unlike_looks   images that look least like their class
equal_rows     rows of a table that are equal finding        a sentence about something that
deserves a look, its severity, its evidence findings       all of these sentences samples
records to show: read by their numbers, drawn with boxes and masks beside         records beside
their sources refused        rejects to show, from their sources rejects_sheet  rejects as lines and
as a contact sheet, for `inspect --rejects` charts         histograms, bars and a heat map as SVG
facts          all of this, for the template page           joins them with page.html, page.css and
page.js
"""

from beam_tfr.reporting.page import ReportPage as ReportPage
from beam_tfr.reporting.page import report as report
from beam_tfr.reporting.page import write_report as write_report

__all__ = ["ReportPage", "report", "write_report"]
