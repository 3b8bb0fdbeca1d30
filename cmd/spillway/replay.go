package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/decisionfile"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/routing"
)

func newReplayCommand() *cobra.Command {
	var from, specFile, output string
	cmd := &cobra.Command{
		Use:   "replay --from FILE [--spec FILE]",
		Short: "Make the recorded choices of a gateway again, as they were or with another spec",
		Long: `Make the recorded choices of a gateway again, from the file of decisions.file. Without --spec every choice must be equal in every bit;
the command fails if one is not. With --spec it prints which choices another spec would have changed.

Replayed is the gateway's choice of a zone or a peer region. Of the other spec these keys apply: models, tenants (regions,
residency), pools, routing.spill off, routing.spill_margin, routing.spill_share, zones and zone_weights of the region, and the list
of regions. Not replayed are the choice of a worker in a zone, queues, authentication, limits, aliases, fallback models, and what
other choices would have done to the load: each choice is made from the summaries, loads and budgets of its time. A request that
was not allowed to spill stays so.

FILE.1, the file before FILE, is read first if it exists. Choices whose summaries are in a file that is gone are counted as
skipped.`,
		Example: "  spillway replay --from /var/lib/spillway/decisions\n  spillway replay --from decisions --spec new.yaml",
		GroupID: "operate",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			sum, err := replayDecisions(from, specFile)
			if err != nil {
				return err
			}
			if output == "json" {
				err = printJSON(cmd.OutOrStdout(), sum)
			} else {
				printReplaySummary(cmd.OutOrStdout(), sum)
			}
			switch {
			case err != nil:
				return err
			case sum.Replayed == 0:
				return errors.New("no choice could be replayed\nhint: is it the file of a gateway (decisions.file)? Local instances record no inputs")
			case specFile == "" && sum.Changed > 0:
				return fmt.Errorf("%d of %d choices differ from the recorded ones: the file is of another release, or a choice depends on something that is not recorded", sum.Changed, sum.Replayed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "decision file of a gateway")
	f.StringVar(&specFile, "spec", "", "spec file with which the choices are made (default: as recorded)")
	addOutputFlag(cmd, &output)
	panicOnError(cmd.MarkFlagRequired("from"))
	return cmd
}

// replaySummary is the result of a replay.
type replaySummary struct {
	Replayed int            `json:"replayed"`
	Changed  int            `json:"changed"`
	Skipped  int            `json:"skipped"`
	First    time.Time      `json:"first,omitzero"`
	Last     time.Time      `json:"last,omitzero"`
	WasTTFT  float64        `json:"was_mean_ttft_seconds"` // predicted, over choices with an endpoint before and after
	NowTTFT  float64        `json:"now_mean_ttft_seconds"`
	Moves    []replayMove   `json:"moves"`    // by count
	Examples []replayChange `json:"examples"` // the first changed choices
	Torn     []string       `json:"torn,omitempty"`
	both     int
}

// replayMove counts the changed choices from one candidate to another.
type replayMove struct {
	Model  string `json:"model"`
	Tenant string `json:"tenant"`
	From   string `json:"from"`
	To     string `json:"to"`
	Count  int    `json:"count"`
}

// replayChange is one changed choice.
type replayChange struct {
	RequestID string    `json:"request_id"`
	At        time.Time `json:"at"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	WasTTFT   float64   `json:"was_ttft_seconds"`
	NowTTFT   float64   `json:"now_ttft_seconds"`
}

// maxReplayExamples bounds the changed choices that a summary lists.
const maxReplayExamples = 10

// replayDecisions replays the choices of a file and of the one before it.
func replayDecisions(from, specFile string) (*replaySummary, error) {
	var next *spec.Spec
	if specFile != "" {
		var err error
		if next, err = readReplaySpec(specFile); err != nil {
			return nil, err
		}
	}
	sum, p, moves := &replaySummary{Moves: []replayMove{}, Examples: []replayChange{}}, routing.NewReplayer(), map[replayMove]int{}
	files := []string{from}
	if _, err := os.Stat(from + decisionfile.EarlierSuffix); err == nil {
		files = []string{from + decisionfile.EarlierSuffix, from}
	}
	for _, name := range files {
		torn, err := decisionfile.ReadFile(name, func(rec *decision.Record) error {
			switch rec.Event {
			case decision.EventState:
				_ = p.AddState(rec) // decisions that need it are skipped
			case decision.EventChoice, decision.EventRefuse:
				sum.addChoice(p, rec, next, moves)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if torn {
			sum.Torn = append(sum.Torn, name)
		}
	}
	for m, n := range moves {
		m.Count = n
		sum.Moves = append(sum.Moves, m)
	}
	slices.SortFunc(sum.Moves, func(a, b replayMove) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Model+a.Tenant+a.From+a.To, b.Model+b.Tenant+b.From+b.To))
	})
	if sum.both > 0 {
		sum.WasTTFT /= float64(sum.both)
		sum.NowTTFT /= float64(sum.both)
	}
	return sum, nil
}

// readReplaySpec reads a spec of a fleet, or of a region that runs alone.
func readReplaySpec(file string) (*spec.Spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the spec: %w", err)
	}
	s, err := spec.Decode(file, text)
	if err == nil {
		return s, nil
	}
	if alone, aloneErr := spec.DecodeStandalone(file, text); aloneErr == nil {
		return alone, nil
	}
	return nil, err
}

// addChoice replays one choice.
func (s *replaySummary) addChoice(p *routing.Replayer, rec *decision.Record, next *spec.Spec, moves map[replayMove]int) {
	refused := ""
	var change func(*routing.RouteQuery, *routing.RoutingView)
	if next != nil {
		change = func(q *routing.RouteQuery, v *routing.RoutingView) { refused = applyReplaySpec(next, q, v) }
	}
	c, err := p.ReplayChoice(rec, change)
	if err != nil {
		s.Skipped++
		return
	}
	if s.Replayed++; s.Replayed == 1 {
		s.First = rec.At
	}
	s.Last = rec.At
	was, now := describeReplayed(&c.Was, c.WasOK), describeReplayed(&c.Now, c.NowOK)
	if refused != "" {
		now, c.NowOK = "refused: "+refused, false
	}
	if c.WasOK && c.NowOK {
		s.both++
		s.WasTTFT += c.Was.TTFTSeconds
		s.NowTTFT += c.Now.TTFTSeconds
	}
	if next == nil && c.IsEqual() || next != nil && was == now {
		return
	}
	s.Changed++
	moves[replayMove{Model: rec.Model, Tenant: rec.Tenant, From: was, To: now}]++
	if len(s.Examples) < maxReplayExamples {
		s.Examples = append(s.Examples, replayChange{rec.RequestID, rec.At, was, now, c.Was.TTFTSeconds, c.Now.TTFTSeconds})
	}
}

func describeReplayed(d *routing.RouteDecision, ok bool) string {
	if !ok {
		return "none"
	}
	return d.Path.String()
}

// applyReplaySpec puts the keys of a spec that concern the choice in force. It returns why the request would have been refused before
// the choice.
func applyReplaySpec(s *spec.Spec, q *routing.RouteQuery, v *routing.RoutingView) (refused string) {
	t := s.FindTenant(q.Tenant)
	switch {
	case t == nil && q.Tenant != spec.DefaultTenant:
		return "no tenant " + q.Tenant
	case s.FindModel(q.Model) == nil:
		return "no model " + q.Model
	}
	if t != nil {
		q.Residency, q.Regions = t.Residency, t.Regions
	}
	if q.Hops == 0 {
		q.Spill = q.Spill && (s.Routing.Spill == nil || *s.Routing.Spill)
		q.Margin = time.Duration(s.Routing.SpillMargin)
	}
	q.Pool, q.Overflow = "", false
	if pool, _ := modelroute.FindPool(s, q.Tenant, q.Model, q.Class); pool != nil {
		q.Pool, q.Overflow = pool.Name, pool.Overflow
	}
	if len(v.Locals) == 0 {
		return ""
	}
	region := s.FindRegion(v.Locals[0].Summary.Path.Region)
	if region == nil {
		return ""
	}
	if t != nil && !s.PermitsRegion(t, region) {
		return "residency"
	}
	q.SpillShare = s.Routing.SpillShare / float64(max(len(region.Gateways), 1))
	v.Locals = slices.DeleteFunc(v.Locals, func(l routing.LocalInstance) bool {
		return len(region.Zones) > 0 && !slices.Contains(region.Zones, l.Summary.Path.Zone)
	})
	for i := range v.Locals {
		v.Locals[i].Weight = region.ZoneWeights[v.Locals[i].Summary.Path.Zone]
	}
	v.Peers = slices.DeleteFunc(v.Peers, func(p routing.PeerRegion) bool { return s.FindRegion(p.Region) == nil })
	for i := range v.Peers {
		v.Peers[i].Residency = s.FindRegion(v.Peers[i].Region).Residency
	}
	return ""
}

func printReplaySummary(w io.Writer, s *replaySummary) {
	fmt.Fprintf(w, "%d choices replayed, %d changed, %d skipped", s.Replayed, s.Changed, s.Skipped)
	if s.Replayed > 0 {
		fmt.Fprintf(w, ", from %s to %s", s.First.Format(time.RFC3339), s.Last.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
	if s.both > 0 {
		fmt.Fprintf(w, "mean predicted TTFT: %s as recorded, %s replayed\n", formatTermSeconds(s.WasTTFT, true), formatTermSeconds(s.NowTTFT, true))
	}
	for _, name := range s.Torn {
		fmt.Fprintf(w, "the last record is incomplete: %s\n", name)
	}
	if s.Changed == 0 {
		return
	}
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nCHOICES\tMODEL\tTENANT\tFROM\tTO")
		for _, m := range s.Moves[:min(len(s.Moves), 50)] {
			fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\n", m.Count, m.Model, dashIfEmpty(m.Tenant), m.From, m.To)
		}
	})
	writeTable(w, func(t io.Writer) {
		fmt.Fprintln(t, "\nREQUEST\tAT\tFROM\tTO\tTTFT AS RECORDED\tREPLAYED")
		for _, e := range s.Examples {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", e.RequestID, e.At.Format(time.RFC3339), e.From, e.To, formatTermSeconds(e.WasTTFT, true), formatTermSeconds(e.NowTTFT, true))
		}
	})
}
