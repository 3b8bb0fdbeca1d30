package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/global/notify"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/regional"
)

// updateDocs makes the tests of this file write the reference documents instead of comparing them: make docs.
var updateDocs = flag.Bool("update-docs", false, "write the generated documents in deploy/docs")

const docsDir = "../../deploy/docs"

// compareDoc compares a generated document with its file, or writes the file with -update-docs.
func compareDoc(t *testing.T, name, want string) {
	t.Helper()
	path := filepath.Join(docsDir, name)
	if *updateDocs {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) == want {
		return
	}
	haveLines, wantLines := strings.Split(string(have), "\n"), strings.Split(want, "\n")
	for i := range max(len(haveLines), len(wantLines)) {
		if i >= len(haveLines) || i >= len(wantLines) || haveLines[i] != wantLines[i] {
			t.Fatalf("%s:%d is not what the code generates: run `make docs` and commit the result", path, i+1)
		}
	}
}

// TestConfigReference compares config-reference.md with `spillway config describe` of every kind of file.
func TestConfigReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Config reference\n\nEvery key of every file: its type, its default and what it does. `make docs` writes this page from `spillway config\n" +
		"describe ROLE`, which prints the same. A key under `[]` belongs to each element of a list.\n")
	titles := []struct{ kind, title string }{
		{"spec", "The spec: what all tiers share"},
		{"global", "A global node"},
		{"regional", "A gateway"},
		{"local", "A local instance"},
		{"worker", "A simulated worker"},
	}
	for _, s := range titles {
		var out bytes.Buffer
		if err := config.DescribeConfig(&out, s.kind); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n## %s\n\n", s.title)
		lines := strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
		for i := 0; i < len(lines); i++ {
			key, rest, _ := strings.Cut(lines[i], "  ")
			fmt.Fprintf(&b, "- `%s` %s", key, rest)
			for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "    ") {
				i++
				b.WriteString("  \n  " + strings.TrimSpace(lines[i]))
			}
			b.WriteString("\n")
		}
	}
	compareDoc(t, "config-reference.md", b.String())
}

// metricDoc is one metric of one tier.
type metricDoc struct {
	name, help string
	labels     []string
}

var descPattern = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), (?:unit: "[^"]*", )?constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}\}$`)

// registeredMetrics returns the metrics of Spillway that a registry describes.
func registeredMetrics(t *testing.T, reg *prometheus.Registry) []metricDoc {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		reg.Describe(descs)
		close(descs)
	}()
	var out []metricDoc
	for d := range descs {
		m := descPattern.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a description that cannot be read: %s", d)
			continue
		}
		name, _ := strconv.Unquote(m[1])
		help, _ := strconv.Unquote(m[2])
		if strings.HasPrefix(name, "spillway_") {
			out = append(out, metricDoc{name, help, strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })})
		}
	}
	return out
}

// declaredMetrics returns the metrics of package-level prometheus.NewDesc calls in a tier: collectors that do not
// describe themselves are not in registeredMetrics.
func declaredMetrics(t *testing.T, dir string) []metricDoc {
	t.Helper()
	var out []metricDoc
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if m, ok := declaredMetric(call); ok {
					out = append(out, m)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// declaredMetric reads prometheus.NewDesc(NAME, HELP, LABELS, nil), or newDesc(NAME, HELP, LABEL...) of package uplink.
func declaredMetric(call *ast.CallExpr) (m metricDoc, ok bool) {
	if len(call.Args) < 2 {
		return m, false
	}
	prefix, labels := "", call.Args[2:]
	switch fn := call.Fun.(type) {
	case *ast.SelectorExpr:
		ok = fn.Sel.Name == "NewDesc"
	case *ast.Ident:
		ok, prefix = fn.Name == "newDesc", "spillway_uplink_"
	}
	if !ok {
		return m, false
	}
	if m.name, ok = stringLiteral(call.Args[0]); !ok {
		return m, false
	}
	m.name = prefix + m.name
	m.help, _ = stringLiteral(call.Args[1])
	for _, e := range labels {
		m.labels = append(m.labels, stringLiterals(e)...)
	}
	return m, true
}

func stringLiteral(e ast.Expr) (string, bool) {
	if b, ok := e.(*ast.BinaryExpr); ok && b.Op == token.ADD {
		left, ok1 := stringLiteral(b.X)
		right, ok2 := stringLiteral(b.Y)
		return left + right, ok1 && ok2
	}
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

func stringLiterals(e ast.Expr) (out []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if x, ok := n.(ast.Expr); ok {
			if s, ok := stringLiteral(x); ok {
				out = append(out, s)
			}
		}
		return true
	})
	return out
}

// TestMetricsReference compares metrics-reference.md with the metrics that one node of each tier registers.
func TestMetricsReference(t *testing.T) {
	certs, err := identity.NewProcessCerts(
		identity.ID{Role: identity.RoleGlobal, Name: "g1"},
		identity.ID{Role: identity.RoleGateway, Region: "r", Name: "gw1"},
		identity.ID{Role: identity.RoleLocal, Region: "r", Zone: "a", Name: "l1"})
	if err != nil {
		t.Fatal(err)
	}
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	const anyPort = "127.0.0.1:0"
	var registries [3]*prometheus.Registry
	for i := range registries {
		registries[i] = prometheus.NewRegistry()
	}
	g, err := global.New(global.Config{
		Name: "g1", Certs: certs[0], Atlas: atlas, RaftListen: anyPort, DNSListen: []string{anyPort}, HTTPListen: anyPort, UplinkListen: anyPort,
		Registry: registries[0], Notifications: []notify.Endpoint{{Name: "hook"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := regional.New(regional.Config{
		Name: "gw1", Region: "r", Dir: t.TempDir(), UsageDir: t.TempDir(), Certs: certs[1], Atlas: atlas, HTTPListen: anyPort, PeerListen: anyPort,
		UplinkListen: anyPort, Globals: []string{g.UplinkAddr().String()}, Registry: registries[1],
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := local.New(local.Config{
		EndpointPicker: config.EndpointPicker{Listen: anyPort, Plain: true, MaxStreams: 1},
		Name:           "l1", Region: "r", Zone: "a", Certs: certs[2], Listen: anyPort, Gateways: []string{r.UplinkAddr().String()}, Registry: registries[2],
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, stop := range []func(context.Context) error{l.Stop, r.Stop, g.Stop} {
		if err := stop(t.Context()); err != nil {
			t.Log(err)
		}
	}
	var b strings.Builder
	b.WriteString("# Metrics reference\n\nEvery metric of every tier, with its labels. `make docs` writes this page from the registries of the code. Names that end\n" +
		"in `_total` are counters, `_seconds` and `_bytes` are in base units. A node serves its metrics at `/metrics` of\n" +
		"`metrics.listen`, with Go's own (`go_`, `process_`) and `spillway_build_info`, whose labels name tier, node, version and\nGo release.\n")
	sections := []struct {
		title   string
		metrics []metricDoc
	}{
		{"Global nodes", append(registeredMetrics(t, registries[0]), declaredMetrics(t, "../../global")...)},
		{"Gateways", append(registeredMetrics(t, registries[1]), declaredMetrics(t, "../../regional")...)},
		{"Local instances", append(registeredMetrics(t, registries[2]), declaredMetrics(t, "../../local")...)},
		{"All tiers", append(declaredMetrics(t, "../../internal/uplink"), declaredMetrics(t, "../../internal/certfile")...)},
	}
	for _, section := range sections {
		metrics := section.metrics
		slices.SortFunc(metrics, func(a, b metricDoc) int { return strings.Compare(a.name, b.name) })
		metrics = slices.CompactFunc(metrics, func(a, b metricDoc) bool { return a.name == b.name })
		fmt.Fprintf(&b, "\n## %s\n\n| metric | labels | meaning |\n|---|---|---|\n", section.title)
		for _, m := range metrics {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), strings.ReplaceAll(m.help, "|", `\|`))
		}
	}
	compareDoc(t, "metrics-reference.md", b.String())
}

// TestHTTPAPIDocument requires http-api.md to list every error code with its status, every path that is forwarded by
// default, and every header that package forward names; and no code or header of ours that does not exist.
func TestHTTPAPIDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(docsDir, "http-api.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	codes := stringConstants(t, "../../internal/openai", "Code")
	for _, code := range codes {
		if !regexp.MustCompile("(?m)^\\| [2-5][0-9][0-9] \\| `" + code + "` \\|").MatchString(text) {
			t.Errorf("http-api.md has no row for the error code %q", code)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| [2-5][0-9][0-9] \\| `([a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(codes, m[1]) {
			t.Errorf("http-api.md lists the error code %q, which does not exist", m[1])
		}
	}
	for _, path := range paths.DefaultPaths() {
		if !strings.Contains(text, "`"+path+"`") {
			t.Errorf("http-api.md does not list the path %s", path)
		}
	}
	headers := append(stringConstants(t, "../../internal/httpedge/forward", "Header"), stringConstants(t, "../../internal/httpedge/forward", "header")...)
	for _, h := range headers {
		if !strings.Contains(text, "`"+h+"`") {
			t.Errorf("http-api.md does not list the header %s", h)
		}
	}
	for _, m := range regexp.MustCompile("`((?:X-)?Spillway-[A-Za-z-]*[a-z])`").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(headers, m[1]) {
			t.Errorf("http-api.md lists the header %s, which does not exist", m[1])
		}
	}
}

// stringConstants returns the values of the string constants of a package whose names begin with prefix and a capital letter.
func stringConstants(t *testing.T, dir, prefix string) (out []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no Go files: %v", dir, err)
	}
	named := regexp.MustCompile("^" + prefix + "[A-Z]")
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
				for i, name := range v.Names {
					if s, ok := stringLiteral(v.Values[i]); ok && named.MatchString(name.Name) {
						out = append(out, s)
					}
				}
			}
			return true
		})
	}
	return out
}

// TestDocumentLinks requires every relative link of the README and of the documents in deploy to lead to a file.
func TestDocumentLinks(t *testing.T) {
	files := []string{"../../README.md", "../../.github/CONTRIBUTING.md", "../../.github/SECURITY.md"}
	for _, pattern := range []string{"../../deploy/*.md", "../../deploy/*/*.md", "../../*/DESIGN.md", "../../*/*/DESIGN.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", path, m[1])
			}
		}
	}
}

func readReadme(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmeSpecIsValid decodes the spec in the README and checks that it fits on a screen.
func TestReadmeSpecIsValid(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(readReadme(t), -1)
	if len(blocks) == 0 {
		t.Fatal("the README shows no config")
	}
	for _, b := range blocks {
		if _, err := spec.Decode("README.md", []byte(b[1])); err != nil {
			t.Errorf("%v", err)
		}
		if n := strings.Count(b[1], "\n"); n > 25 {
			t.Errorf("the config has %d lines, which is more than a screen", n)
		}
	}
}

// TestReadmeCommandsExist checks that every command and flag in the README exists.
func TestReadmeCommandsExist(t *testing.T) {
	text := readReadme(t)
	calls := regexp.MustCompile(`(?:\./bin/)?spillway ([a-z|]+)((?: [a-z|-]+)*)`).FindAllStringSubmatch(text, -1)
	if len(calls) < 10 {
		t.Fatalf("only %d commands found", len(calls))
	}
	for _, c := range calls {
		for _, verb := range strings.Split(c[1], "|") {
			cmd, _, err := newRootCommand().Find([]string{verb})
			if err != nil || cmd.Name() != verb {
				t.Errorf("%q: unknown command %q", c[0], verb)
				continue
			}
			for _, flag := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(c[2], -1) {
				if cmd.Flags().Lookup(flag[1]) == nil {
					t.Errorf("%q: %s has no flag --%s", c[0], verb, flag[1])
				}
			}
		}
	}
}

// TestReadmeFitsAScreen bounds the README at 150 lines of at most 100 columns, and requires the two commands that set up a checkout.
func TestReadmeFitsAScreen(t *testing.T) {
	text := readReadme(t)
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("the README has %d lines, more than 150", n)
	}
	for i, line := range strings.Split(text, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("README.md:%d: %d columns, more than 100", i+1, n)
		}
	}
	for _, command := range []string{"make demo", "make test"} {
		if !strings.Contains(text, command) {
			t.Errorf("the README does not name %q", command)
		}
	}
}
