package experiment

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// colourCount is the number of colors in addition to the subject's. Further policies reuse them with dashed lines.
const colourCount = 7

// colourClass is the style class of a policy's color and stroke.
func colourClass(colour int) string {
	if colour <= colourCount {
		return fmt.Sprintf("c%d", colour)
	}
	return fmt.Sprintf("c%d d", 1+(colour-1)%colourCount)
}

// plot is one drawing with its texts.
type plot struct {
	Title, Note string
	SVG         template.HTML
}

// plotSeries is one line of a plot.
type plotSeries struct {
	name   string
	colour int
	points []Point
}

// plotAxes are the axes of a plot.
type plotAxes struct {
	xLabel, yLabel string // labels of the axes
	logX           bool
	percentY       bool
	fromX, toX     float64
	fromY, toY     float64
}

// Size of a drawing, which is scaled to the page: small, so that its text is legible on a phone.
const (
	plotWidth  = 440.0
	plotHeight = 270.0
	plotLeft   = 48.0
	plotBottom = 38.0
	plotTop    = 30.0
	plotRight  = 12.0
)

// makePlots draws a case.
func (c *CaseReport) makePlots(colour func(string) int) (out []plot) {
	values := c.variedValues()
	show := values
	if len(values) > 2 {
		show = []*float64{values[len(values)/2], values[len(values)-1]}
	}
	for _, v := range show {
		at := ""
		if v != nil && len(c.Rows) > 0 {
			at = " at " + c.describeValue(*v)
		}
		out = append(out, c.plotValue(v, at, colour)...)
	}
	if g := c.plotGoodput(colour); g != nil {
		out = append(out, *g)
	}
	return out
}

func (c *CaseReport) plotValue(value *float64, at string, colour func(string) int) (out []plot) {
	var ttft, load []plotSeries
	var hits []chartBar
	for i := range c.Rows {
		r := &c.Rows[i]
		if !equalValues(r.Value, value) {
			continue
		}
		k := colour(r.Policy)
		if len(r.TTFT) > 1 {
			ttft = append(ttft, plotSeries{name: r.Policy, colour: k, points: r.TTFT})
		}
		if len(r.WorkerBusy) > 1 {
			s := plotSeries{name: r.Policy, colour: k}
			for n, l := range r.WorkerBusy {
				s.points = append(s.points, Point{float64(n + 1), l})
			}
			load = append(load, s)
		}
		if h := r.Figures["hit_rate"]; h.Missing == "" {
			hits = append(hits, chartBar{name: r.Policy, colour: k, spread: h})
		}
	}
	if len(ttft) > 0 {
		out = append(out, plot{
			"Time to first token" + at, "part of all requests that had their first token by then; refused ones never do",
			drawLines(ttft, plotAxes{xLabel: "seconds", yLabel: "requests", logX: true, percentY: true, toY: 1}),
		})
	}
	if len(load) > 0 {
		out = append(out, plot{
			"Load per worker" + at, "part of the time that each worker was busy, busiest first; level is even",
			drawLines(load, plotAxes{xLabel: "worker", yLabel: "busy", percentY: true, fromX: 1, toY: 1}),
		})
	}
	if slices.ContainsFunc(hits, func(b chartBar) bool { return b.spread.Max > 0 }) {
		out = append(out, plot{"Hit rate" + at, "part of the prompts that was cached; the thin line is from the least to the greatest seed", drawBars(hits)})
	}
	return out
}

// plotGoodput draws goodput against the varied value, of values and of searches.
func (c *CaseReport) plotGoodput(colour func(string) int) *plot {
	var list []plotSeries
	for _, policy := range c.policyNames() {
		s := plotSeries{name: policy, colour: colour(policy)}
		for i := range c.Rows {
			if r := &c.Rows[i]; r.Policy == policy && r.Value != nil && r.Figures["goodput"].Missing == "" {
				s.points = append(s.points, Point{r.loadValue(), r.Figures["goodput"].Median})
			}
		}
		for i := range c.Capacity {
			if c.Capacity[i].Policy == policy {
				s.points = append(s.points, meanProbes(c.Capacity[i].Probes)...)
			}
		}
		slices.SortFunc(s.points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
		if len(s.points) > 1 {
			list = append(list, s)
		}
	}
	if len(list) == 0 {
		return nil
	}
	unit := c.Vary
	if c.Vary == "rate" {
		unit = "requests per second"
	}
	return &plot{"Goodput against " + c.Vary, "requests per second that met the SLO", drawLines(list, plotAxes{xLabel: unit, yLabel: "goodput /s"})}
}

// meanProbes are the means over the seeds at each value.
func meanProbes(list []SearchProbe) (out []Point) {
	for i := 0; i < len(list); {
		n, sum := i, 0.0
		for n < len(list) && list[n].Value == list[i].Value {
			sum += list[n].Goodput
			n++
		}
		out = append(out, Point{list[i].Value, sum / float64(n-i)})
		i = n
	}
	return out
}

// drawLines draws lines.
func drawLines(list []plotSeries, a plotAxes) template.HTML {
	a.fitBounds(list)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, plotHeight)
	a.drawGrid(&b)
	// The subject is drawn last, so that it is on top.
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(x, y plotSeries) int { return cmp.Compare(y.colour, x.colour) })
	for _, s := range order {
		fmt.Fprintf(&b, `<polyline class="l %s" points="`, colourClass(s.colour))
		for _, p := range s.points {
			if a.logX && p.X < a.fromX {
				p.X = a.fromX
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", a.xPos(p.X), a.yPos(p.Y))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, html.EscapeString(s.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String() + drawLegend(list))
}

// drawLegend labels the lines.
func drawLegend(list []plotSeries) string {
	var b strings.Builder
	b.WriteString(`<p class="legend">`)
	for _, s := range list {
		fmt.Fprintf(&b, `<span><i class="%s"></i>%s</span> `, colourClass(s.colour), html.EscapeString(s.name))
	}
	b.WriteString("</p>")
	return b.String()
}

// fitBounds computes the bounds of the axes.
func (a *plotAxes) fitBounds(list []plotSeries) {
	low := math.Inf(1)
	for _, s := range list {
		for _, p := range s.points {
			if p.X > 0 {
				low = min(low, p.X)
			}
			a.toX, a.toY = max(a.toX, p.X), max(a.toY, p.Y)
		}
	}
	if a.logX {
		a.fromX = math.Pow(10, math.Floor(math.Log10(max(low, 0.001))))
		a.toX = max(a.toX, a.fromX*10)
	}
	if a.toX <= a.fromX {
		a.toX = a.fromX + 1
	}
	if a.toY <= a.fromY {
		a.toY = a.fromY + 1
	}
}

func (a *plotAxes) xPos(x float64) float64 {
	part := (x - a.fromX) / (a.toX - a.fromX)
	if a.logX {
		part = math.Log(x/a.fromX) / math.Log(a.toX/a.fromX)
	}
	return plotLeft + min(max(part, 0), 1)*(plotWidth-plotLeft-plotRight)
}

func (a *plotAxes) yPos(y float64) float64 {
	part := (y - a.fromY) / (a.toY - a.fromY)
	return plotHeight - plotBottom - min(max(part, 0), 1)*(plotHeight-plotTop-plotBottom)
}

func (a *plotAxes) drawGrid(b *strings.Builder) {
	for _, y := range roundTicks(a.fromY, a.toY) {
		text := formatThreeDigits(y)
		if a.percentY {
			text = fmt.Sprintf("%.0f %%", 100*y)
		}
		fmt.Fprintf(b, `<line class="g" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotLeft, plotWidth-plotRight, a.yPos(y), a.yPos(y))
		fmt.Fprintf(b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft-5, a.yPos(y)+4, text)
	}
	marks := roundTicks(a.fromX, a.toX)
	if a.logX {
		marks = nil
		for x := a.fromX; x <= a.toX*1.001; x *= 10 {
			marks = append(marks, x)
			if a.toX/a.fromX <= 100 {
				marks = append(marks, 2*x, 5*x)
			}
		}
		marks = slices.DeleteFunc(marks, func(x float64) bool { return x > a.toX*1.001 })
	}
	for _, x := range marks {
		fmt.Fprintf(b, `<line class="g" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, a.xPos(x), a.xPos(x), plotTop, plotHeight-plotBottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, a.xPos(x), plotHeight-plotBottom+15, formatTick(x))
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, plotWidth-plotRight, plotHeight-4, html.EscapeString(a.xLabel))
	fmt.Fprintf(b, `<text x="%g" y="%g">%s</text>`, 2.0, plotTop-16, html.EscapeString(a.yLabel))
}

// formatTick formats a tick's number.
func formatTick(x float64) string {
	if x >= 10_000 {
		return fmt.Sprintf("%gk", math.Round(x/100)/10)
	}
	return fmt.Sprintf("%g", math.Round(x*1e6)/1e6)
}

// roundTicks are about five round numbers.
func roundTicks(from, to float64) (out []float64) {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/4)))
	for _, k := range []float64{1, 2, 5, 10} {
		if (to-from)/(step*k) <= 6 {
			step *= k
			break
		}
	}
	for i := math.Ceil(from/step - 1e-9); i*step <= to*(1+1e-9); i++ {
		out = append(out, i*step+0) // avoids negative zero
	}
	return out
}

// chartBar is one bar of a bar chart.
type chartBar struct {
	name   string
	colour int
	spread SeedSpread
}

// drawBars draws horizontal bars of fractions.
func drawBars(list []chartBar) template.HTML {
	const left, row, right = 170.0, 24.0, 56.0
	height := row*float64(len(list)) + 8
	width := plotWidth - left - right
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, height)
	for i, x := range list {
		y := 4 + row*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, left-6, y+16, html.EscapeString(x.name))
		fmt.Fprintf(&b, `<rect class="b %s" x="%g" y="%g" width="%.1f" height="%g" rx="2"/>`, colourClass(x.colour), left, y+4, max(x.spread.Median*width, 1), row-8)
		if x.spread.Max > x.spread.Min {
			fmt.Fprintf(&b, `<line class="w" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, left+x.spread.Min*width, left+x.spread.Max*width, y+12, y+12)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g">%s</text>`, left+max(x.spread.Median, x.spread.Max)*width+6, y+16, FormatFigure(x.spread.Median, "%"))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
