package gpu

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The engine runs in virtual time as well: it must not look at a clock, wait, or share.
func TestEngineIsPure(t *testing.T) {
	allowed := []string{"errors", "fmt", "math", "math/rand/v2", "slices", "sort", "strings", "sync", "time"}
	for _, name := range []string{"engine.go", "schedule.go", "sequence.go", "pool.go", "limits.go", "profile.go", "derive.go", "table.go", "extents.go", "parts.go", "piece.go", "noise.go", "stretch.go", "coldstart.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); !slices.Contains(allowed, path) {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", name)
			}
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After", "NewTimer"}, sel.Sel.Name) {
					t.Errorf("%s calls time.%s", name, sel.Sel.Name)
				}
			}
			return true
		})
	}
}
