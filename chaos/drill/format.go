package drill

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/chaos/fault"
)

// FormatFile writes a drill in the order and form of its catalogue. ParseFile reads it back as the same drill.
func FormatFile(f *DrillFile) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "drill %s\ntitle %s\n", f.Name, f.Title)
	for _, h := range f.Hypothesis {
		fmt.Fprintf(&b, "hypothesis %s\n", h)
	}
	if f.Open != "" {
		fmt.Fprintf(&b, "open %s\n", f.Open)
	}
	if f.LiveOnly != "" {
		fmt.Fprintf(&b, "live %s\n", f.LiveOnly)
	}
	b.WriteByte('\n')
	if text := formatFleet(&f.Fleet); text != "" {
		fmt.Fprintf(&b, "fleet %s\n", text)
	}
	fmt.Fprintf(&b, "load %s\n", formatLoad(&f.Load))
	if text := formatSLO(&f.SLO); text != "" {
		fmt.Fprintf(&b, "slo %s\n", text)
	}
	b.WriteByte('\n')
	for i := range f.Steps {
		fmt.Fprintf(&b, "%s\n", f.Steps[i].String())
	}
	b.WriteByte('\n')
	for _, phase := range []RunPhase{PhaseBefore, PhaseDuring, PhaseAfter} {
		for i := range f.Conditions {
			if f.Conditions[i].Phase == phase {
				fmt.Fprintf(&b, "%s\n", f.Conditions[i].String())
			}
		}
	}
	for i := range f.Controls {
		c := &f.Controls[i]
		fmt.Fprintf(&b, "control %s%s within %s\n", formatSlice(c.Slice), c.Metric, formatShare(c.Within))
	}
	if f.Budget != nil {
		fmt.Fprintf(&b, "harmed <= %s of requests due\n", formatBudget(f.Budget))
	}
	for _, o := range f.Objectives {
		fmt.Fprintf(&b, "rto %s <= %s\n", o.Rung, formatTime(o.Bound))
	}
	for i := range f.Stops {
		fmt.Fprintf(&b, "stop when %s\n", formatStopRule(&f.Stops[i]))
	}
	for _, a := range f.Pages {
		fmt.Fprintf(&b, "page %s within %s\n", a.Alert, formatTime(a.Within))
	}
	if f.Runbook != "" {
		fmt.Fprintf(&b, "runbook %s\n", f.Runbook)
	}
	return []byte(b.String())
}

func formatFleet(s *FleetShape) string {
	var out []string
	for _, x := range []struct {
		n    int
		noun string
	}{{s.Regions, "region"}, {s.Zones, "zone"}, {s.Workers, "worker"}, {s.Gateways, "gateway"}, {s.Locals, "local"}, {s.Globals, "global"}} {
		switch {
		case x.n == 1:
			out = append(out, "1 "+x.noun)
		case x.n > 1:
			out = append(out, fmt.Sprintf("%d %ss", x.n, x.noun))
		}
	}
	if s.WeightsGBps > 0 {
		out = append(out, "weights "+formatNumber(s.WeightsGBps)+" GB/s")
	}
	return strings.Join(out, ", ")
}

func formatLoad(l *LoadShape) string {
	out := []string{formatNumber(l.Rate) + " requests/s for " + formatTime(l.Duration)}
	if l.WarmUp > 0 {
		out = append(out, "warm-up "+formatTime(l.WarmUp))
	}
	out = append(out, fmt.Sprintf("prompts %d tokens", l.PromptTokens), fmt.Sprintf("answers %d tokens", l.AnswerTokens))
	if l.Prefixes > 0 {
		out = append(out, fmt.Sprintf("%d prefixes of %d tokens", l.Prefixes, l.PrefixTokens))
	}
	if l.Nightly > 0 {
		out = append(out, "nightly "+formatShare(l.Nightly))
	}
	if l.HoldAnswers > 0 {
		out = append(out, "hold "+formatTime(l.HoldAnswers))
	}
	if l.Seed != 1 {
		out = append(out, fmt.Sprintf("seed %d", l.Seed))
	}
	return strings.Join(out, ", ")
}

func formatSLO(s *SLOTarget) string {
	var out []string
	if s.TTFT > 0 {
		out = append(out, "ttft "+formatTime(s.TTFT))
	}
	if s.TPOT > 0 {
		out = append(out, "tpot "+formatTime(s.TPOT))
	}
	return strings.Join(out, ", ")
}

// String is the step as a line of a file.
func (s *Step) String() string {
	return fmt.Sprintf("at %s for %s %s", formatTime(s.At), formatTime(s.For), s.describeFault())
}

// describeFault is the fault without its times.
func (s *Step) describeFault() string {
	out := string(s.Kind)
	if s.Scope != "" {
		out += " " + string(s.Scope) + " " + s.Target
	}
	in, _ := findStepKind(s.Kind)
	names := make([]string, 0, len(s.Params))
	for name := range s.Params {
		names = append(names, name)
	}
	position := func(name string) int {
		return slices.IndexFunc(in.Params, func(q fault.Param) bool { return q.Name == name })
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(position(a), position(b)), cmp.Compare(a, b)) })
	for _, name := range names {
		value := s.Params[name]
		if i := position(name); i >= 0 {
			value = formatParam(in.Params[i], value)
		}
		out += " " + name + " " + value
	}
	return out
}

// formatParam writes a parameter's value as files have it.
func formatParam(q fault.Param, value string) string {
	switch q.Unit {
	case "duration":
		if d, err := time.ParseDuration(value); err == nil {
			return formatTime(d)
		}
	case "share":
		if v, _, ok := splitUnit(value); ok {
			return formatShare(v)
		}
	}
	return value
}

// String is the condition as a line of a file.
func (c *Condition) String() string {
	out := fmt.Sprintf("%s %s%s %s %s", c.Phase, formatSlice(c.Slice), c.Metric, c.Op, formatBound(c.Metric, c.Value, c.OfBefore))
	if c.OfBefore {
		out += " of before"
	}
	return out
}

// formatStopRule is the rule as files have it.
func formatStopRule(s *StopRule) string {
	return fmt.Sprintf("%s %s %s for %s", s.Metric, s.Op, formatBound(s.Metric, s.Value, false), formatTime(s.For))
}

// formatBound formats the value of a condition.
func formatBound(metric string, v float64, relative bool) string {
	if m, _ := findMetric(metric); m.unit == "s" && !relative {
		return formatTime(secondsToDuration(v))
	}
	return formatShare(v)
}

func secondsToDuration(v float64) time.Duration {
	d, _ := toDuration(v, time.Second)
	return d
}

// formatSlice is the slice in front of a figure.
func formatSlice(s Slice) string {
	switch {
	case s.Region != "":
		return "region " + s.Region + " "
	case s.Tenant != "":
		return "tenant " + s.Tenant + " "
	}
	return ""
}

// formatBudget is the bound of a budget.
func formatBudget(b *HarmBudget) string {
	if b.IsCount {
		return fmt.Sprint(b.Count)
	}
	return formatShare(b.Share)
}
