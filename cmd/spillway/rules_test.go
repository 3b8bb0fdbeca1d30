package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const rulesDir = "../../deploy/prometheus"

type rulesFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Record, Expr string
	Labels, Annotations map[string]string
}

// readRules returns the rules of all groups of a file.
func readRules(t *testing.T, name string) (out []rule) {
	t.Helper()
	var f rulesFile
	readYAML(t, name, &f)
	for _, g := range f.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no rules", name)
	}
	return out
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rulesDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// knownSeries returns the names in the metrics reference, which TestMetricsReference compares with the code, and the series that
// rules record.
func knownSeries(t *testing.T) map[string]bool {
	t.Helper()
	reference, err := os.ReadFile(filepath.Join(docsDir, "metrics-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(spillway_[a-z0-9_]+)` \\|").FindAllStringSubmatch(string(reference), -1) {
		known[m[1]] = true
	}
	for _, r := range readRules(t, "recording.rules.yaml") {
		known[r.Record] = true
	}
	return known
}

var (
	seriesPattern   = regexp.MustCompile(`spillway[_:][a-z0-9_:]+`)
	histogramSuffix = regexp.MustCompile(`_(bucket|count|sum)$`)
)

// checkSeries reports the series of an expression that are not known, and returns how many it has.
func checkSeries(t *testing.T, where, expr string, known map[string]bool) int {
	t.Helper()
	all := seriesPattern.FindAllString(expr, -1)
	for _, name := range all {
		if !known[name] && !known[histogramSuffix.ReplaceAllString(name, "")] {
			t.Errorf("%s uses %s, which no tier registers and no rule records", where, name)
		}
	}
	return len(all)
}

func TestRulesUseRegisteredMetrics(t *testing.T) {
	known := knownSeries(t)
	rules := append(readRules(t, "recording.rules.yaml"), readRules(t, "alerts.rules.yaml")...)
	used := 0
	for _, r := range rules {
		used += checkSeries(t, r.Alert+r.Record, r.Expr, known)
	}
	if used < len(rules)-2 { // two alerts use Prometheus' own series "up"
		t.Errorf("%d series found in %d rules", used, len(rules))
	}
}

// dashboardQueries returns the queries of the Grafana dashboards by dashboard and panel.
func dashboardQueries(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	out := map[string]string{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ RefID, Expr string }
			}
			Templating struct {
				List []struct{ Name, Definition string }
			}
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				out[filepath.Base(path)+": "+p.Title+" "+q.RefID] = q.Expr
			}
		}
		for _, v := range d.Templating.List {
			if v.Definition != "" {
				out[filepath.Base(path)+": variable "+v.Name] = v.Definition
			}
		}
	}
	return out
}

func TestDashboardsUseRegisteredMetrics(t *testing.T) {
	known := knownSeries(t)
	for where, expr := range dashboardQueries(t) {
		if checkSeries(t, where, expr, known) == 0 {
			t.Errorf("%s: no series found in %s", where, expr)
		}
	}
}

// TestAlertsAreComplete shows that every alert has its texts, a section in the runbook, and tests of firing and of not firing.
func TestAlertsAreComplete(t *testing.T) {
	runbook, err := os.ReadFile("../../deploy/runbooks/alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		sections = append(sections, m[1])
	}
	var tests struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []map[string]any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, "alerts.test.yaml", &tests)
	firing, quiet := map[string]bool{}, map[string]bool{}
	for _, c := range tests.Tests {
		for _, a := range c.AlertRuleTest {
			firing[a.Alertname] = firing[a.Alertname] || len(a.ExpAlerts) > 0
			quiet[a.Alertname] = quiet[a.Alertname] || len(a.ExpAlerts) == 0
		}
	}
	var alerts []string
	for _, r := range readRules(t, "alerts.rules.yaml") {
		alerts = append(alerts, r.Alert)
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
			t.Errorf("%s has no summary, no description, or a severity other than critical and warning", r.Alert)
		}
		if want := "https://github.com/spillway-lb/spillway/blob/main/deploy/runbooks/alerts.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %q, want %q", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !slices.Contains(sections, r.Alert) {
			t.Errorf("%s has no section in deploy/runbooks/alerts.md", r.Alert)
		}
		if !firing[r.Alert] || !quiet[r.Alert] {
			t.Errorf("%s: alerts.test.yaml needs a case in which it fires and one in which it does not", r.Alert)
		}
	}
	for _, s := range sections {
		if !slices.Contains(alerts, s) {
			t.Errorf("deploy/runbooks/alerts.md has a section %s without an alert", s)
		}
	}
}

// TestRulesPassPromtool checks the rules, runs their unit tests, and parses the queries of the dashboards with Prometheus' own
// tool.
func TestRulesPassPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing (Debian: prometheus)")
	}
	var rules []map[string]string
	for where, expr := range dashboardQueries(t) {
		if !strings.Contains(where, ": variable ") {
			rules = append(rules, map[string]string{"record": fmt.Sprintf("dashboard:query:%d", len(rules)), "expr": expr})
		}
	}
	queries, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboards", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	asRules := filepath.Join(t.TempDir(), "dashboards.yaml")
	if err := os.WriteFile(asRules, queries, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"check", "rules", "recording.rules.yaml", "alerts.rules.yaml", asRules}, {"test", "rules", "alerts.test.yaml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = rulesDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestRunbookCommandsExist shows that each spillway command in a runbook names a verb and flags that exist.
func TestRunbookCommandsExist(t *testing.T) {
	pages, err := filepath.Glob("../../deploy/runbooks/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal("no runbooks", err)
	}
	inline := regexp.MustCompile("`(?:[^`]*[ $])?(spillway [a-z][^`]*)`|(?m)^\\$ (spillway .*)$")
	commands := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range inline.FindAllStringSubmatch(string(text), -1) {
			commands++
			line := m[1] + m[2]
			if problem := checkCommandLine(newRootCommand(), strings.Fields(line)[1:]); problem != "" {
				t.Errorf("%s: %q: %s", filepath.Base(page), line, problem)
			}
		}
	}
	if commands < 60 {
		t.Errorf("%d commands found in the runbooks, want at least 60", commands)
	}
}

// checkCommandLine returns what is wrong with the verb and the flags of a command line, or "".
func checkCommandLine(root *cobra.Command, args []string) string {
	cmd, rest, err := root.Find(args)
	if err != nil || cmd == root {
		return "no such command"
	}
	takesArguments := strings.ToLower(cmd.Use) != cmd.Use // Use names arguments in upper case
	if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && cmd.HasSubCommands() && !takesArguments {
		return "no such command"
	}
	for _, a := range rest {
		name, isFlag := strings.CutPrefix(a, "-")
		if !isFlag || name == "" {
			continue
		}
		name, _, _ = strings.Cut(strings.Trim(name, "-.,;"), "=")
		var known bool
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = known || f.Name == name || f.Shorthand == name })
		if !known {
			return "no such flag: " + a
		}
	}
	return ""
}

func TestCheckCommandLineFindsMistakes(t *testing.T) {
	for line, bad := range map[string]bool{
		"get uplinks": false, "members remove NAME": false, "drain region NAME --dry-run": false, "audit -n 20": false,
		"get uplink": true, "frobnicate": true, "drain region NAME --dry": true, "status --all": true,
	} {
		if problem := checkCommandLine(newRootCommand(), strings.Fields(line)); (problem != "") != bad {
			t.Errorf("%q: %q", line, problem)
		}
	}
}
