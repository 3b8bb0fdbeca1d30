// Command targets reads the output of `go test -bench` and compares it with the local tier's targets, with the spread
// of repeated runs. It measures nothing itself and never fails for a missed target, because machines differ.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// benchTarget is a bound on one figure of one benchmark.
type benchTarget struct {
	title, bench, unit string
	bound              float64
	atLeast            bool // the bound is a minimum, not a maximum
}

func listTargets() []benchTarget {
	const choose = "BenchmarkChoosePercentiles"
	return []benchTarget{
		{"choice among 1,000 workers, 8 K tokens: p50, us", choose, "p50-us", 25, false},
		{"  the same in CPU time of its thread", choose, "cpu-p50-us", 25, false},
		{"  p99, us", choose, "p99-us", 100, false},
		{"  the same in CPU time of its thread", choose, "cpu-p99-us", 100, false},
		{"  allocations", choose, "allocs/op", 0, false},
		{"queue cycles per second and core, 1,000 tenants", "BenchmarkSubmitDispatchFinish", "cycles/s", 100_000, true},
		{"matching a prompt of 220 KB, ns", "BenchmarkMatch220KB", "ns/op", 150_000, false},
		{"index under 1 M distinct prefixes, % of its bound", "BenchmarkIndexFlood", "%bound", 100, false},
		{"100 workers scraped at 1 s, % of a core", "BenchmarkScrape100Workers", "%core", 5, false},
	}
}

func main() {
	if err := printTargets(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "targets:", err)
		os.Exit(1)
	}
}

func printTargets(in io.Reader, out io.Writer) error {
	seen, err := readBenchmarks(in)
	if err != nil {
		return fmt.Errorf("reading benchmarks: %w", err)
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tBOUND\tMEDIAN\tLEAST\tGREATEST\tRUNS\t")
	for _, g := range listTargets() {
		g.printRow(t, seen[g.bench+" "+g.unit])
	}
	return t.Flush()
}

func (g *benchTarget) printRow(t io.Writer, figures []float64) {
	sign := "<="
	if g.atLeast {
		sign = ">="
	}
	if len(figures) == 0 {
		fmt.Fprintf(t, "%s\t%s %s\t-\t-\t-\t0\tnot measured\n", g.title, sign, formatNumber(g.bound))
		return
	}
	slices.Sort(figures)
	median, verdict := figures[len(figures)/2], "met"
	if g.atLeast && median < g.bound || !g.atLeast && median > g.bound {
		verdict = "MISSED"
	}
	fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%d\t%s\n", g.title, sign, formatNumber(g.bound), formatNumber(median), formatNumber(figures[0]), formatNumber(figures[len(figures)-1]), len(figures), verdict)
}

func formatNumber(v float64) string {
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// readBenchmarks collects every figure by benchmark and unit. Other lines are skipped.
func readBenchmarks(in io.Reader) (map[string][]float64, error) {
	seen := map[string][]float64{}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 4 || !strings.HasPrefix(words[0], "Benchmark") {
			continue
		}
		name, _, _ := strings.Cut(words[0], "-")
		for i := 2; i+1 < len(words); i += 2 {
			if v, err := strconv.ParseFloat(words[i], 64); err == nil {
				seen[name+" "+words[i+1]] = append(seen[name+" "+words[i+1]], v)
			}
		}
	}
	return seen, lines.Err()
}
