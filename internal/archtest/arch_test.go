package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func tree(t *testing.T) (string, *token.FileSet, []file) {
	t.Helper()
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	files, err := load(dir, fset)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d source files found under %s: the walk is broken", len(files), dir)
	}
	return dir, fset, files
}

func TestTopLevelFolders(t *testing.T) {
	dir, _, _ := tree(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && !slices.Contains(topLevel, e.Name()) {
			t.Errorf("folder %s: the top level reads as the architecture and has room for %s only", e.Name(), strings.Join(topLevel, " "))
		}
	}
	for _, want := range topLevel {
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Errorf("folder %s is missing: the top level reads as the architecture", want)
		}
	}
}

func TestImportDirections(t *testing.T) {
	dir, _, files := tree(t)
	for _, f := range files {
		for _, v := range forbidden(f) {
			rel, _ := filepath.Rel(dir, f.path)
			t.Errorf("%s: %s", rel, v)
		}
	}
}

func forbidden(f file) []string {
	var out []string
	for _, imp := range f.imports() {
		for _, r := range rules() {
			if r.from(f.pkg) && r.to(imp) {
				out = append(out, "imports "+imp+": "+r.reason)
			}
		}
	}
	return out
}

func TestPurePackages(t *testing.T) {
	dir, fset, files := tree(t)
	seen := map[string]bool{}
	for _, f := range files {
		if !slices.Contains(pure, f.pkg) {
			continue
		}
		seen[f.pkg] = true
		for _, v := range impurities(fset, f) {
			rel, _ := filepath.Rel(dir, f.path)
			t.Errorf("%s: %s", rel, v)
		}
	}
	for _, p := range pure {
		if !seen[p] {
			t.Errorf("pure package %s has no source: was it renamed without telling archtest?", p)
		}
	}
}

// impurities lists what keeps a file from being part of a pure package.
func impurities(fset *token.FileSet, f file) []string {
	var out []string
	for _, imp := range f.imports() {
		if why, bad := shellImports[imp]; bad {
			out = append(out, "a pure package imports "+imp+": "+why)
		}
		ours := !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") && anyOf(topLevel...)(imp)
		if ours && !slices.Contains(pure, imp) && !slices.Contains(plainData, imp) {
			out = append(out, "a pure package imports "+imp+": pure packages import only pure packages")
		}
	}
	clock, rnd := f.local("time"), f.local("math/rand/v2")
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			out = append(out, fset.Position(n.Pos()).String()+": starts a goroutine: a decider is single-threaded")
		case *ast.SelectorExpr:
			pkg, ok := n.X.(*ast.Ident)
			if !ok || pkg.Obj != nil {
				return true
			}
			if clock != "" && pkg.Name == clock && clockCalls[n.Sel.Name] {
				out = append(out, fset.Position(n.Pos()).String()+": calls time."+n.Sel.Name+": a decider takes now as an argument, so that the simulator runs the same code")
			}
			if rnd != "" && pkg.Name == rnd && !seedlessRand[n.Sel.Name] {
				out = append(out, fset.Position(n.Pos()).String()+": calls rand."+n.Sel.Name+": chance is an argument (*rand.Rand), so that a seed replays a run")
			}
		}
		return true
	})
	return out
}

func TestEveryPackageSaysWhatItDecides(t *testing.T) {
	dir, _, files := tree(t)
	docs := map[string]string{}
	pkgs := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.pkg, "pb") {
			continue // generated messages
		}
		pkgs[f.pkg] = true
		if filepath.Base(f.path) == "doc.go" && f.syntax.Doc != nil {
			docs[f.pkg] = f.syntax.Doc.Text()
		}
	}
	for p := range pkgs {
		switch doc := docs[p]; {
		case doc == "":
			t.Errorf("%s has no doc.go: every package says what it decides and what it never does", p)
		case !strings.Contains(doc, "never") && !strings.Contains(doc, "nothing"):
			t.Errorf("%s/doc.go does not say what the package never does", filepath.Join(dir, p))
		}
	}
}

func TestNoInitAndNoVagueNames(t *testing.T) {
	dir, _, files := tree(t)
	for _, f := range files {
		rel, _ := filepath.Rel(dir, f.path)
		base := f.pkg[strings.LastIndexByte(f.pkg, '/')+1:]
		for _, vague := range []string{"utils", "util", "common", "helpers", "types", "models", "misc"} {
			if base == vague {
				t.Errorf("%s: a package called %s answers no question", rel, vague)
			}
		}
		if strings.HasSuffix(f.pkg, "pb") {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function: tables are passed in, so that two planets fit in one process", rel)
			}
		}
	}
}

// TestRulesHaveTeeth breaks each kind of rule once: a check that cannot fail is no check.
func TestRulesHaveTeeth(t *testing.T) {
	cases := []struct{ name, pkg, src, want string }{
		{"tier imports tier", "local", `package local; import _ "github.com/spillway-lb/spillway/regional/zone"`, "tiers never import each other"},
		{"production imports chaos", "regional", `package regional; import _ "github.com/spillway-lb/spillway/chaos/gpu"`, "production never imports chaos"},
		{"consensus knows capacity", "consensus", `package consensus; import _ "github.com/spillway-lb/spillway/internal/capacity"`, "consensus never holds telemetry"},
		{"DNS library outside", "global", `package global; import _ "github.com/miekg/dns"`, "frozen upstream"},
		{"internal on a tier", "internal/relay", `package relay; import _ "github.com/spillway-lb/spillway/geo"`, "stand under the tiers"},
	}
	for _, c := range cases {
		if got := strings.Join(forbidden(parse(t, c.pkg, c.src)), "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want it to say %q", c.name, got, c.want)
		}
	}
	impure := []struct{ name, src, want string }{
		{"reads the clock", `package pick; import "time"; var x = time.Now()`, "takes now as an argument"},
		{"waits under another name", `package pick; import clock "time"; func f() { clock.Sleep(1) }`, "takes now as an argument"},
		{"global chance", `package pick; import "math/rand/v2"; var x = rand.Int()`, "chance is an argument"},
		{"goroutine", `package pick; func f() { go f() }`, "single-threaded"},
		{"logs", `package pick; import _ "log/slog"`, "the edge logs it"},
		{"imports a shell", `package pick; import _ "github.com/spillway-lb/spillway/internal/relay"`, "only pure packages"},
	}
	for _, c := range impure {
		if got := strings.Join(impurities(token.NewFileSet(), parse(t, "local/pick", c.src)), "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want it to say %q", c.name, got, c.want)
		}
	}
	fine := parse(t, "local/pick", `package pick; import ("time"; "math/rand/v2"; "net/netip"); func f(now time.Time, r *rand.Rand, a netip.Addr) int { return r.IntN(3) }`)
	if got := impurities(token.NewFileSet(), fine); len(got) != 0 {
		t.Errorf("a pure file is refused: %v", got)
	}
}

func parse(t *testing.T, pkg, src string) file {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file{pkg: pkg, path: "x.go", syntax: syntax}
}
