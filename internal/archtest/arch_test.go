package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func loadTree(t *testing.T) (string, *token.FileSet, []sourceFile) {
	t.Helper()
	dir, fset, files := treeWithTests(t)
	return dir, fset, slices.DeleteFunc(slices.Clone(files), sourceFile.isTest)
}

// parsedModule is the whole module, parsed once for all tests.
type parsedModule struct {
	dir   string
	fset  *token.FileSet
	files []sourceFile
}

var parseModule = sync.OnceValues(func() (parsedModule, error) {
	dir, err := moduleRoot()
	if err != nil {
		return parsedModule{}, err
	}
	fset := token.NewFileSet()
	files, err := loadFiles(dir, fset)
	return parsedModule{dir, fset, files}, err
})

func treeWithTests(t *testing.T) (string, *token.FileSet, []sourceFile) {
	t.Helper()
	m, err := parseModule()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.files) < 20 {
		t.Fatalf("only %d source files found under %s: the walk is broken", len(m.files), m.dir)
	}
	return m.dir, m.fset, m.files
}

func TestTopLevelFolders(t *testing.T) {
	dir, _, _ := loadTree(t)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && !slices.Contains(topLevelFolders, e.Name()) {
			t.Errorf("folder %s: the top level reads as the architecture and has room for %s only", e.Name(), strings.Join(topLevelFolders, " "))
		}
	}
	for _, want := range topLevelFolders {
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Errorf("folder %s is missing: the top level reads as the architecture", want)
		}
	}
}

func TestImportDirections(t *testing.T) {
	dir, _, files := loadTree(t)
	for _, f := range files {
		for _, v := range forbiddenImports(f) {
			rel, _ := filepath.Rel(dir, f.path)
			t.Errorf("%s: %s", rel, v)
		}
	}
}

func forbiddenImports(f sourceFile) []string {
	var out []string
	for _, imp := range f.importPaths() {
		for _, r := range importRules() {
			if r.from(f.pkg) && r.to(imp) {
				out = append(out, "imports "+imp+": "+r.reason)
			}
		}
	}
	return out
}

func TestPurePackages(t *testing.T) {
	dir, fset, files := loadTree(t)
	seen := map[string]bool{}
	for _, f := range files {
		if !slices.Contains(purePackages, f.pkg) {
			continue
		}
		seen[f.pkg] = true
		for _, v := range findImpurities(fset, f) {
			rel, _ := filepath.Rel(dir, f.path)
			t.Errorf("%s: %s", rel, v)
		}
	}
	for _, p := range purePackages {
		if !seen[p] {
			t.Errorf("pure package %s has no source: was it renamed without telling archtest?", p)
		}
	}
}

// findImpurities lists what keeps a file from being part of a pure package.
func findImpurities(fset *token.FileSet, f sourceFile) []string {
	var out []string
	for _, imp := range f.importPaths() {
		why, bad := shellImports[imp]
		if strings.HasPrefix(imp, "net/http/") {
			why, bad = "a decider takes values, not requests or responses of net/http", true
		}
		if bad {
			out = append(out, "a pure package imports "+imp+": "+why)
		}
		ours := !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".") && anyOf(topLevelFolders...)(imp)
		if ours && !slices.Contains(purePackages, imp) && !slices.Contains(plainData, imp) {
			out = append(out, "a pure package imports "+imp+": pure packages import only pure packages")
		}
	}
	clock, rnd := f.importName("time"), f.importName("math/rand/v2")
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

func TestEveryPackageHasDoc(t *testing.T) {
	_, _, files := loadTree(t)
	docs := map[string][]string{} // files with a package comment by package
	pkgs := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f.pkg, "pb") {
			continue // generated messages
		}
		pkgs[f.pkg] = true
		if f.syntax.Doc.Text() != "" {
			docs[f.pkg] = append(docs[f.pkg], filepath.Base(f.path))
		}
	}
	for p := range pkgs {
		if len(docs[p]) != 1 {
			t.Errorf("%s has %d files with a package comment %v: one file describes what the package does", p, len(docs[p]), docs[p])
		}
	}
}

func TestNoInitAndNoVagueNames(t *testing.T) {
	dir, _, files := loadTree(t)
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
				t.Errorf("%s has an init function: tables are passed in, so that two fleets fit in one process", rel)
			}
		}
	}
}

// TestRuleViolationsAreReported breaks each kind of rule once: a check that cannot fail is no check.
func TestRuleViolationsAreReported(t *testing.T) {
	cases := []struct{ name, pkg, src, want string }{
		{"tier imports tier", "local", `package local; import _ "github.com/spillway-lb/spillway/regional/routing"`, "tiers never import each other"},
		{"production imports chaos", "regional", `package regional; import _ "github.com/spillway-lb/spillway/chaos/gpu"`, "production never imports chaos"},
		{"consensus knows capacity", "consensus", `package consensus; import _ "github.com/spillway-lb/spillway/internal/capacity"`, "consensus never holds telemetry"},
		{"DNS library outside", "global", `package global; import _ "github.com/miekg/dns"`, "frozen upstream"},
		{"internal on a tier", "internal/httpedge/forward", `package relay; import _ "github.com/spillway-lb/spillway/geo"`, "stand under the tiers"},
	}
	for _, c := range cases {
		if got := strings.Join(forbiddenImports(parseSource(t, c.pkg, c.src)), "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want it to say %q", c.name, got, c.want)
		}
	}
	impure := []struct{ name, src, want string }{
		{"reads the clock", `package pick; import "time"; var x = time.Now()`, "takes now as an argument"},
		{"waits under another name", `package pick; import clock "time"; func f() { clock.Sleep(1) }`, "takes now as an argument"},
		{"global chance", `package pick; import "math/rand/v2"; var x = rand.Int()`, "chance is an argument"},
		{"goroutine", `package pick; func f() { go f() }`, "single-threaded"},
		{"takes a request of net/http", `package pick; import "net/http"; func f(r *http.Request) {}`, "takes values, not requests"},
		{"takes a type below net/http", `package pick; import "net/http/httptest"; func f(r *httptest.ResponseRecorder) {}`, "takes values, not requests"},
		{"logs", `package pick; import _ "log/slog"`, "the edge logs it"},
		{"imports a shell", `package pick; import _ "github.com/spillway-lb/spillway/internal/httpedge/forward"`, "only pure packages"},
	}
	for _, c := range impure {
		if got := strings.Join(findImpurities(token.NewFileSet(), parseSource(t, "local/pick", c.src)), "; "); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want it to say %q", c.name, got, c.want)
		}
	}
	fine := parseSource(t, "local/pick", `package pick; import ("time"; "math/rand/v2"; "net/netip"); func f(now time.Time, r *rand.Rand, a netip.Addr) int { return r.IntN(3) }`)
	if got := findImpurities(token.NewFileSet(), fine); len(got) != 0 {
		t.Errorf("a pure file is refused: %v", got)
	}
}

func parseSource(t *testing.T, pkg, src string) sourceFile {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), "x.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	return sourceFile{pkg: pkg, path: "x.go", syntax: syntax}
}
