package rollout

import (
	"cmp"
	"fmt"
	"strings"
)

// findingState is the result of a rule for one group of requests.
type findingState uint8

const (
	stateOK         findingState = iota
	stateTooFew                  // too few requests
	stateNoBaseline              // nothing to compare with
	stateUncertain               // over the limit, but it may be chance
	stateBreached
)

// Finding is the result of one rule for one group of requests.
type Finding struct {
	Region         string // empty: all of them
	Service, Model string // both empty: all requests of the region
	Rule           Rule
	Sample         int64
	Value, Limit   float64 // Limit is absolute: for a relative rule, factor times baseline
	state          findingState
	isTotal        bool
}

// RolloutDecision is what to do now, and why.
type RolloutDecision struct {
	Action     RolloutAction
	TimeCounts bool // the time since the last check counts towards the window
	Reason     string
	Findings   []Finding // the worst first
}

// String returns one line for operators and for the audit.
func (f *Finding) String() string {
	var b strings.Builder
	where := cmp.Or(f.Region, "everywhere")
	if f.Service != "" || f.Model != "" {
		where += " " + cmp.Or(f.Model, "(no model)") + " of " + cmp.Or(f.Service, "(no service)")
	}
	fmt.Fprintf(&b, "%s: %s is %s of %d requests", where, f.Rule.Name(), f.Rule.formatRounded(f.Value), f.Sample)
	switch f.state {
	case stateTooFew:
		return b.String() + ", too few to judge"
	case stateNoBaseline:
		return b.String() + ", and nothing to compare with"
	}
	fmt.Fprintf(&b, ", limit %s", f.Rule.formatRounded(f.Limit))
	if f.Rule.Relative {
		fmt.Fprintf(&b, " (%sx)", formatNumber(f.Rule.Limit))
	}
	if f.state == stateUncertain {
		b.WriteString(", which may be chance")
	}
	return b.String()
}

// maxReportedFindings bounds the findings in a report.
const maxReportedFindings = 20

// FormatReport lists the findings, the worst first.
func (v *RolloutDecision) FormatReport() string {
	var b strings.Builder
	for i := range v.Findings {
		if i == maxReportedFindings {
			fmt.Fprintf(&b, "and %d more\n", len(v.Findings)-i)
			break
		}
		b.WriteString(v.Findings[i].String() + "\n")
	}
	return b.String()
}
