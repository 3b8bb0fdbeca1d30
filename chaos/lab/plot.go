package lab

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// colours is how many the page tells apart beside the subject's. Policies beyond them have the same colours again, dashed.
const colours = 7

// tint is a policy's colour and stroke as the page's style knows it.
func tint(colour int) string {
	if colour <= colours {
		return fmt.Sprintf("c%d", colour)
	}
	return fmt.Sprintf("c%d d", 1+(colour-1)%colours)
}

// plot is one drawing with its words.
type plot struct {
	Title, Note string
	SVG         template.HTML
}

// series is one line of a plot.
type series struct {
	name   string
	colour int
	points []Point
}

// axes of a plot.
type axes struct {
	x, y       string // what is on them
	logX       bool
	percentY   bool
	fromX, toX float64
	fromY, toY float64
}

// The size of a drawing, which is scaled to the page: small, so that its text is legible on a phone.
const (
	plotWidth  = 440.0
	plotHeight = 270.0
	plotLeft   = 48.0
	plotBottom = 38.0
	plotTop    = 30.0
	plotRight  = 12.0
)

// plots draws a case.
func (c *CaseReport) plots(colour func(string) int) (out []plot) {
	values := c.values()
	show := values
	if len(values) > 2 {
		show = []*float64{values[len(values)/2], values[len(values)-1]}
	}
	for _, v := range show {
		at := ""
		if v != nil && len(c.Rows) > 0 {
			at = " at " + c.valueWords(*v)
		}
		out = append(out, c.curves(v, at, colour)...)
	}
	if g := c.goodputs(colour); g != nil {
		out = append(out, *g)
	}
	return out
}

func (c *CaseReport) curves(value *float64, at string, colour func(string) int) (out []plot) {
	var ttft, load []series
	var hits []bar
	for i := range c.Rows {
		r := &c.Rows[i]
		if !same(r.Value, value) {
			continue
		}
		k := colour(r.Policy)
		if len(r.TTFT) > 1 {
			ttft = append(ttft, series{name: r.Policy, colour: k, points: r.TTFT})
		}
		if len(r.Busy) > 1 {
			s := series{name: r.Policy, colour: k}
			for n, l := range r.Busy {
				s.points = append(s.points, Point{float64(n + 1), l})
			}
			load = append(load, s)
		}
		if h := r.Figures["hit_rate"]; h.Missing == "" {
			hits = append(hits, bar{name: r.Policy, colour: k, s: h})
		}
	}
	if len(ttft) > 0 {
		out = append(out, plot{
			"Time to first token" + at, "part of all requests that had their first token by then; refused ones never do",
			draw(ttft, axes{x: "seconds", y: "requests", logX: true, percentY: true, toY: 1}),
		})
	}
	if len(load) > 0 {
		out = append(out, plot{
			"Load per worker" + at, "part of the time that each worker was busy, busiest first; level is even",
			draw(load, axes{x: "worker", y: "busy", percentY: true, fromX: 1, toY: 1}),
		})
	}
	if slices.ContainsFunc(hits, func(b bar) bool { return b.s.Max > 0 }) {
		out = append(out, plot{"Hit rate" + at, "part of the prompts that was cached; the thin line is from the least to the greatest seed", bars(hits)})
	}
	return out
}

// goodputs is goodput against what was varied, of values and of searches.
func (c *CaseReport) goodputs(colour func(string) int) *plot {
	var list []series
	for _, policy := range c.policies() {
		s := series{name: policy, colour: colour(policy)}
		for i := range c.Rows {
			if r := &c.Rows[i]; r.Policy == policy && r.Value != nil && r.Figures["goodput"].Missing == "" {
				s.points = append(s.points, Point{r.at(), r.Figures["goodput"].Median})
			}
		}
		for i := range c.Capacity {
			if c.Capacity[i].Policy == policy {
				s.points = append(s.points, probes(c.Capacity[i].Probes)...)
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
	return &plot{"Goodput against " + c.Vary, "requests per second that met the SLO", draw(list, axes{x: unit, y: "goodput /s"})}
}

// probes are the means of the seeds at each value.
func probes(list []Probe) (out []Point) {
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

// draw makes lines.
func draw(list []series, a axes) template.HTML {
	a.fit(list)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, plotHeight)
	a.grid(&b)
	// The subject comes last, so that it lies on top.
	order := slices.Clone(list)
	slices.SortStableFunc(order, func(x, y series) int { return cmp.Compare(y.colour, x.colour) })
	for _, s := range order {
		fmt.Fprintf(&b, `<polyline class="l %s" points="`, tint(s.colour))
		for _, p := range s.points {
			if a.logX && p.X < a.fromX {
				p.X = a.fromX
			}
			fmt.Fprintf(&b, "%.1f,%.1f ", a.at(p.X), a.up(p.Y))
		}
		fmt.Fprintf(&b, `"><title>%s</title></polyline>`, html.EscapeString(s.name))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String() + legend(list))
}

// legend names the lines.
func legend(list []series) string {
	var b strings.Builder
	b.WriteString(`<p class="legend">`)
	for _, s := range list {
		fmt.Fprintf(&b, `<span><i class="%s"></i>%s</span> `, tint(s.colour), html.EscapeString(s.name))
	}
	b.WriteString("</p>")
	return b.String()
}

// fit finds the bounds.
func (a *axes) fit(list []series) {
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

func (a *axes) at(x float64) float64 {
	part := (x - a.fromX) / (a.toX - a.fromX)
	if a.logX {
		part = math.Log(x/a.fromX) / math.Log(a.toX/a.fromX)
	}
	return plotLeft + min(max(part, 0), 1)*(plotWidth-plotLeft-plotRight)
}

func (a *axes) up(y float64) float64 {
	part := (y - a.fromY) / (a.toY - a.fromY)
	return plotHeight - plotBottom - min(max(part, 0), 1)*(plotHeight-plotTop-plotBottom)
}

func (a *axes) grid(b *strings.Builder) {
	for _, y := range ticks(a.fromY, a.toY) {
		text := three(y)
		if a.percentY {
			text = fmt.Sprintf("%.0f %%", 100*y)
		}
		fmt.Fprintf(b, `<line class="g" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/>`, plotLeft, plotWidth-plotRight, a.up(y), a.up(y))
		fmt.Fprintf(b, `<text x="%g" y="%.1f" text-anchor="end">%s</text>`, plotLeft-5, a.up(y)+4, text)
	}
	marks := ticks(a.fromX, a.toX)
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
		fmt.Fprintf(b, `<line class="g" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, a.at(x), a.at(x), plotTop, plotHeight-plotBottom)
		fmt.Fprintf(b, `<text x="%.1f" y="%g" text-anchor="middle">%s</text>`, a.at(x), plotHeight-plotBottom+15, tidy(x))
	}
	fmt.Fprintf(b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, plotWidth-plotRight, plotHeight-4, html.EscapeString(a.x))
	fmt.Fprintf(b, `<text x="%g" y="%g">%s</text>`, 2.0, plotTop-16, html.EscapeString(a.y))
}

// tidy is a tick's number.
func tidy(x float64) string {
	if x >= 10_000 {
		return fmt.Sprintf("%gk", math.Round(x/100)/10)
	}
	return fmt.Sprintf("%g", math.Round(x*1e6)/1e6)
}

// ticks are about five round numbers.
func ticks(from, to float64) (out []float64) {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/4)))
	for _, k := range []float64{1, 2, 5, 10} {
		if (to-from)/(step*k) <= 6 {
			step *= k
			break
		}
	}
	for i := math.Ceil(from/step - 1e-9); i*step <= to*(1+1e-9); i++ {
		out = append(out, i*step+0) // and no negative zero
	}
	return out
}

// bar is one of a bar chart.
type bar struct {
	name   string
	colour int
	s      Spread
}

// bars makes horizontal bars of parts of one.
func bars(list []bar) template.HTML {
	const left, row, right = 170.0, 24.0, 56.0
	height := row*float64(len(list)) + 8
	width := plotWidth - left - right
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img">`, plotWidth, height)
	for i, x := range list {
		y := 4 + row*float64(i)
		fmt.Fprintf(&b, `<text x="%g" y="%g" text-anchor="end">%s</text>`, left-6, y+16, html.EscapeString(x.name))
		fmt.Fprintf(&b, `<rect class="b %s" x="%g" y="%g" width="%.1f" height="%g" rx="2"/>`, tint(x.colour), left, y+4, max(x.s.Median*width, 1), row-8)
		if x.s.Max > x.s.Min {
			fmt.Fprintf(&b, `<line class="w" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/>`, left+x.s.Min*width, left+x.s.Max*width, y+12, y+12)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%g">%s</text>`, left+max(x.s.Median, x.s.Max)*width+6, y+16, Figure(x.s.Median, "%"))
	}
	b.WriteString("</svg>")
	return template.HTML(b.String())
}
