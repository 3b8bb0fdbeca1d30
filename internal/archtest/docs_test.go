package archtest

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkedDocs are the documents whose paths and identifiers in backticks must exist.
var checkedDocs = []string{"deploy/docs/architecture.md", "deploy/docs/howto-add-*.md", "*/DESIGN.md", "*/*/DESIGN.md"}

var (
	inlineCode  = regexp.MustCompile("`([^`\n]+)`")
	pathPattern = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.*-]+)+$`)
	// placePattern matches what a document says of an identifier's place: `name` in `path`, `name` (`path`).
	placePattern = regexp.MustCompile("`([A-Za-z.]+)(?:\\(\\))?` (?:in `([^`]+)`|\\(`([^`]+)`\\))")
	// identPattern matches Go identifiers with an inner capital, with or without a qualifier: camelCase, Type.Method.
	identPattern = regexp.MustCompile(`^(?:[A-Za-z][A-Za-z0-9]*\.)*([a-z][a-z0-9]*[A-Z][A-Za-z0-9]*|[A-Z][A-Z0-9]*[a-z][A-Za-z0-9]*)$`)
)

// TestDocumentsNameWhatExists requires every path and Go identifier in backticks of the documents about the code to exist.
func TestDocumentsNameWhatExists(t *testing.T) {
	root, _, files := treeWithTests(t)
	declared, byFile := moduleNames(files), map[string]map[string]bool{}
	for _, f := range files {
		byFile[path.Join(f.pkg, filepath.Base(f.path))] = moduleNames([]sourceFile{f})
	}
	for _, pattern := range checkedDocs {
		docs, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range docs {
			text, err := os.ReadFile(doc)
			if err != nil {
				t.Fatal(err)
			}
			rel, prose := filepath.ToSlash(strings.TrimPrefix(doc, root+string(filepath.Separator))), withoutBlocks(string(text))
			for _, m := range inlineCode.FindAllStringSubmatch(prose, -1) {
				if why := whyMissing(root, doc, m[1], declared); why != "" {
					t.Errorf("%s: `%s` %s: write its present name", rel, m[1], why)
				}
			}
			for _, m := range placePattern.FindAllStringSubmatch(strings.Join(strings.Fields(prose), " "), -1) {
				if place := m[2] + m[3]; isMisplaced(m[1], place, path.Dir(rel), byFile) {
					t.Errorf("%s: `%s` is not declared in %s: write its present place", rel, m[1], place)
				}
			}
		}
	}
}

// withoutBlocks removes fenced blocks: they show commands and formulas.
func withoutBlocks(text string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			b.WriteString(line)
		}
	}
	return b.String()
}

// whyMissing returns why a word in backticks does not exist; empty for what exists and for what is neither path nor identifier.
func whyMissing(root, doc, word string, declared map[string]bool) string {
	if strings.Contains(word, "NAME") { // a placeholder
		return ""
	}
	top, _, _ := strings.Cut(word, "/")
	if pathPattern.MatchString(word) && isTopFolder(root, top) {
		if found, err := filepath.Glob(filepath.Join(root, word)); err != nil || len(found) == 0 {
			return "is no file or folder"
		}
		return ""
	}
	if strings.HasSuffix(word, ".go") && !strings.ContainsAny(word, "/ ") {
		if found, err := filepath.Glob(filepath.Join(filepath.Dir(doc), word)); err != nil || len(found) == 0 {
			return "is no file beside the document"
		}
		return ""
	}
	m := identPattern.FindStringSubmatch(strings.TrimSuffix(word, "()"))
	if m == nil || declared[m[1]] {
		return ""
	}
	return "is declared nowhere in the module"
}

// isMisplaced reports whether a document places a Go identifier in a file or folder that does not declare it. A file
// name without a folder is one in the folder of the document, docFolder.
func isMisplaced(name, place, docFolder string, byFile map[string]map[string]bool) bool {
	m := identPattern.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	if strings.HasSuffix(place, ".go") && !strings.Contains(place, "/") {
		place = path.Join(docFolder, place)
	}
	known := false
	for file, names := range byFile {
		if file == place || path.Dir(file) == place {
			known = true
			if names[m[1]] {
				return false
			}
		}
	}
	return known
}

func isTopFolder(root, name string) bool {
	info, err := os.Stat(filepath.Join(root, name))
	return err == nil && info.IsDir()
}

// moduleNames collects the names of functions, methods, types, fields, constants and variables of the module.
func moduleNames(files []sourceFile) map[string]bool {
	names := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch d := n.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true
			case *ast.TypeSpec:
				names[d.Name.Name] = true
			case *ast.Field:
				for _, name := range d.Names {
					names[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range d.Names {
					names[name.Name] = true
				}
			}
			return true
		})
	}
	return names
}

func TestWhyMissing(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	doc := filepath.Join(root, "deploy/docs/architecture.md")
	declared := map[string]bool{"ChooseWorker": true, "Child": true}
	for word, missing := range map[string]bool{
		"local/pick": false, "local/nothing": true, "deploy/docs/architecture.md": false, "ChooseWorker": false, "pick.ChooseWorker": false,
		"chooseNobody": true, "Nobody": true, "Child": false, "go test ./local": false, "region/zone/worker": false, "Spillway-Hop": false,
		"kv_events": false, "GET": false,
	} {
		if why := whyMissing(root, doc, word, declared); (why != "") != missing {
			t.Errorf("%s: %q, want missing %v", word, why, missing)
		}
	}
	if withoutBlocks("a\n```\nb\n```\nc\n") != "a\nc\n" {
		t.Error("fenced blocks are not removed")
	}
}

func TestIsMisplaced(t *testing.T) {
	byFile := map[string]map[string]bool{"local/pick/policy.go": {"ParsePolicy": true}, "local/pick/choose.go": {"ChooseWorker": true}, "local/agent.go": {"Agent": true}}
	for _, c := range []struct {
		name, place, docFolder string
		misplaced              bool
	}{
		{"ChooseWorker", "local/pick/choose.go", "deploy/docs", false},
		{"ChooseWorker", "local/pick/policy.go", "deploy/docs", true},
		{"pick.ChooseWorker", "local/pick", "deploy/docs", false},
		{"ChooseWorker", "local", "deploy/docs", true},
		{"ParsePolicy", "policy.go", "local/pick", false},
		{"ChooseWorker", "policy.go", "local/pick", true},
		{"kind", "local/pick", "deploy/docs", false},        // no Go identifier for certain
		{"ChooseWorker", "spec.yaml", "deploy/docs", false}, // no Go file
	} {
		if got := isMisplaced(c.name, c.place, c.docFolder, byFile); got != c.misplaced {
			t.Errorf("%s in %s: misplaced %v, want %v", c.name, c.place, got, c.misplaced)
		}
	}
}
