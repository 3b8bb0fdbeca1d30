package drill

import (
	"fmt"
	"html"
	"html/template"
	"strings"
)

// timelineRow is one row of the timeline.
type timelineRow struct {
	label string
	spans []stateSpan
	class string
}

// drawTimeline draws faults, leader, nodes that were down, and the recovery ladder over the time of the run.
func (r *Report) drawTimeline() template.HTML {
	const left, rowHeight, right, plotWidth = 150.0, 22.0, 12.0, 860.0
	s := r.series
	var rows []timelineRow
	for i, step := range r.Steps {
		rows = append(rows, timelineRow{fmt.Sprintf("fault %d", i+1), []stateSpan{{step.Text, step.From, step.To}}, "fault"})
	}
	if len(s.leaders) > 0 {
		rows = append(rows, timelineRow{"leader", s.leaders, "leader"})
	}
	for _, d := range s.downs {
		rows = append(rows, timelineRow{d.label, []stateSpan{{"", d.from, d.to}}, "down"})
	}
	marks := r.ladderMarks()
	height := rowHeight*float64(len(rows)+len(marks)) + 26
	x := func(at float64) float64 { return left + min(max(at/s.until, 0), 1)*(plotWidth-left-right) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, height)
	for _, t := range roundTicks(0, s.until, 8) {
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="0" y2="%g"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`, x(t), x(t), height-20, x(t), height-5, formatNumber(t))
	}
	for i, row := range rows {
		y := rowHeight * float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, left-8, y+15, html.EscapeString(row.label))
		for _, sp := range row.spans {
			class := row.class
			if sp.label == "no leader" {
				class = "down"
			}
			width := max(x(sp.to)-x(sp.from), 1.5)
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="16" rx="2"><title>%s %.1f to %.1f s</title></rect>`, class, x(sp.from), y+3, width, html.EscapeString(sp.label), sp.from, sp.to)
			if text := sp.label; text != "" {
				at, anchor := x(sp.from)+5, "start"
				if need := 6.6 * float64(len(text)); width < need+8 && row.class == "fault" {
					if at = x(sp.to) + 5; at+need > plotWidth {
						at, anchor = x(sp.from)-5, "end"
					}
				} else if width < need+8 {
					continue
				}
				fmt.Fprintf(&b, `<text class="on" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, at, y+15, anchor, html.EscapeString(text))
			}
		}
	}
	for i, m := range marks {
		y := rowHeight * float64(len(rows)+i)
		fmt.Fprintf(&b, `<text x="%g" y="%.1f" text-anchor="end">%s</text><circle class="mark" cx="%.1f" cy="%.1f" r="4.5"><title>%s</title></circle>`, left-8, y+15, html.EscapeString(m.label), x(m.to), y+11, html.EscapeString(m.label))
		fmt.Fprintf(&b, `<line class="lead" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/><text x="%.1f" y="%.1f">%.1f s</text>`, x(m.from), x(m.to), y+11, y+11, x(m.to)+9, y+15, m.to-m.from)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}

// ladderMarks are the rungs that were reached, each from the fault to its time.
func (r *Report) ladderMarks() (out []stateSpan) {
	if len(r.Steps) == 0 {
		return nil
	}
	first, last := r.Steps[0].From, r.Steps[0].To
	for _, s := range r.Steps {
		first, last = min(first, s.From), max(last, s.To)
	}
	for _, rung := range r.Verdict.Ladder.Rungs {
		from := first
		if rung.Name == RungNormal {
			from = last
		}
		if rung.Reached {
			out = append(out, stateSpan{rung.Name, from, from + rung.Seconds})
		}
	}
	return out
}
