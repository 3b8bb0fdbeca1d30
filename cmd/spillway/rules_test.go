package main

import (
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

// TestRulesUseRegisteredMetrics compares the series of every expression with the metrics reference, which TestMetricsReference
// compares with the code, and with the recorded series.
func TestRulesUseRegisteredMetrics(t *testing.T) {
	reference, err := os.ReadFile(filepath.Join(docsDir, "metrics-reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(spillway_[a-z0-9_]+)` \\|").FindAllStringSubmatch(string(reference), -1) {
		known[m[1]] = true
	}
	rules := append(readRules(t, "recording.rules.yaml"), readRules(t, "alerts.rules.yaml")...)
	for _, r := range rules {
		known[r.Record] = r.Record != ""
	}
	series := regexp.MustCompile(`spillway[_:][a-z0-9_:]+`)
	histogram := regexp.MustCompile(`_(bucket|count|sum)$`)
	used := 0
	for _, r := range rules {
		for _, name := range series.FindAllString(r.Expr, -1) {
			used++
			if !known[name] && !known[histogram.ReplaceAllString(name, "")] {
				t.Errorf("%s%s uses %s, which no tier registers and no rule records", r.Alert, r.Record, name)
			}
		}
	}
	if used < len(rules)-2 {
		t.Errorf("%d series found in %d rules", used, len(rules))
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

// TestRulesPassPromtool checks the rules and runs their unit tests with Prometheus' own tool.
func TestRulesPassPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is missing (Debian: prometheus)")
	}
	for _, args := range [][]string{
		{"check", "rules", "recording.rules.yaml", "alerts.rules.yaml"}, {"test", "rules", "alerts.test.yaml"},
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
