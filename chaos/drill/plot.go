package drill

import (
	"fmt"
	"html"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
)

// Size of a drawing, which is scaled to the page.
const (
	plotWidth  = 500.0
	plotHeight = 175.0
	plotLeft   = 52.0
	plotRight  = 12.0
	plotTop    = 22.0
	plotBottom = 26.0
)

// plotLine is one line of a plot.
type plotLine struct {
	name   string
	class  string
	points []plotPoint
}

// timePlot draws lines over the time of a run, with the faults as bands.
type timePlot struct {
	until, top float64
	unit       string
	steps      []StepSpan
	lines      []plotLine
}

// drawPlot returns the drawing and its legend.
func (p *timePlot) drawPlot() template.HTML {
	for _, l := range p.lines {
		for _, q := range l.points {
			p.top = max(p.top, q.y)
		}
	}
	if p.top <= 0 {
		p.top = 1
	}
	p.top *= 1.08
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, plotHeight)
	p.drawFrame(&b)
	for _, l := range p.lines {
		fmt.Fprintf(&b, `<polyline class="l %s" points="`, l.class)
		for _, q := range l.points {
			fmt.Fprintf(&b, "%.1f,%.1f ", p.xPos(q.x), p.yPos(q.y))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, html.EscapeString(l.name))
	}
	b.WriteString(`</svg><p class="legend">`)
	for _, l := range p.lines {
		fmt.Fprintf(&b, `<span><i class="%s"></i>%s</span> `, l.class, html.EscapeString(l.name))
	}
	b.WriteString("</p>")
	return template.HTML(b.String())
}

// drawFrame draws bands, grid and axes.
func (p *timePlot) drawFrame(b *strings.Builder) {
	for i, s := range p.steps {
		fmt.Fprintf(b, `<rect class="band" x="%.1f" y="%g" width="%.1f" height="%g"><title>%s</title></rect>`, p.xPos(s.From), plotTop, max(p.xPos(s.To)-p.xPos(s.From), 1), plotHeight-plotTop-plotBottom, html.EscapeString(s.Text))
		fmt.Fprintf(b, `<text class="bandmark" x="%.1f" y="%g">%d</text>`, p.xPos(s.From)+3, plotTop+12, i+1)
	}
	for _, y := range roundTicks(0, p.top, 4) {
		fmt.Fprintf(b, `<line class="g" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotLeft, plotWidth-plotRight, p.yPos(y), p.yPos(y))
		fmt.Fprintf(b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft-6, p.yPos(y)+4, formatNumber(math.Round(y*1e4)/1e4))
	}
	for _, x := range roundTicks(0, p.until, 6) {
		fmt.Fprintf(b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, p.xPos(x), plotHeight-plotBottom+16, formatNumber(x))
	}
	fmt.Fprintf(b, `<text x="2" y="13">%s</text>`, html.EscapeString(p.unit))
	fmt.Fprintf(b, `<text x="%g" y="13" text-anchor="end">seconds</text>`, plotWidth-plotRight)
}

func (p *timePlot) xPos(x float64) float64 {
	return plotLeft + min(max(x/p.until, 0), 1)*(plotWidth-plotLeft-plotRight)
}

func (p *timePlot) yPos(y float64) float64 {
	return plotHeight - plotBottom - min(max(y/p.top, 0), 1)*(plotHeight-plotTop-plotBottom)
}

// roundTicks are about n round numbers between two.
func roundTicks(from, to float64, n int) (out []float64) {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/float64(n))))
	for _, k := range []float64{1, 2, 5, 10} {
		if (to-from)/(step*k) <= float64(n)+1 {
			step *= k
			break
		}
	}
	for i := math.Ceil(from/step - 1e-9); i*step <= to*(1+1e-9); i++ {
		out = append(out, i*step+0) // avoids negative zero
	}
	return out
}

// pagePlot is one drawing with its texts.
type pagePlot struct {
	Title, Note string
	SVG         template.HTML
}

// drawPlots draws the run.
func (r *Report) drawPlots() (out []pagePlot) {
	s := r.series
	add := func(title, note, unit string, lines ...plotLine) {
		lines = slices.DeleteFunc(lines, func(l plotLine) bool { return len(l.points) == 0 })
		if len(lines) > 0 {
			p := timePlot{until: s.until, unit: unit, steps: r.Steps, lines: lines}
			out = append(out, pagePlot{title, note, p.drawPlot()})
		}
	}
	good := []plotLine{{"due", "c7", s.due}, {"good", "c0", s.good}}
	ttft := []plotLine{{"p99", "c1", s.ttft99}, {"p50", "c0", s.ttft50}}
	if q := s.predicted; q != nil {
		good = append(good, plotLine{"good, predicted", "c0 d", q.good})
		ttft = append(ttft, plotLine{"p99, predicted", "c1 d", q.ttft99}, plotLine{"p50, predicted", "c0 d", q.ttft50})
	}
	add("Goodput", "requests by the time when they were due: all, and those that met the SLO", "requests/s", good...)
	add("Time to first token", "of complete answers, by the time when they were due", "seconds", ttft...)
	add("Answers by region", "complete answers by the region that served them", "answers/s", linesOf(s.byRegion)...)
	add("Age of summaries", "of each region, at the global node with the oldest", "seconds", linesOf(s.ages)...)
	add("Plan epochs", "the newest epoch that any node serves", "epoch", plotLine{"newest epoch", "c2", stepLine(s.epochs, s.until)})
	return out
}

// linesOf makes a line of each name.
func linesOf(m map[string][]plotPoint) (out []plotLine) {
	for i, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, plotLine{name, fmt.Sprintf("c%d", i%7), m[name]})
	}
	return out
}

// stepLine makes a staircase of points.
func stepLine(points []plotPoint, until float64) (out []plotPoint) {
	for i, p := range points {
		if i > 0 {
			out = append(out, plotPoint{p.x, points[i-1].y})
		}
		out = append(out, p)
	}
	if n := len(points); n > 0 {
		out = append(out, plotPoint{until, points[n-1].y})
	}
	return out
}
