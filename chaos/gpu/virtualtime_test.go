package gpu

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// The engine also runs in virtual time: it must not read a clock, wait, or share state.
func TestEngineIsPure(t *testing.T) {
	allowed := []string{"errors", "fmt", "math", "math/rand/v2", "slices", "sort", "strings", "sync", "time"}
	for _, name := range []string{"engine.go", "schedule.go", "sequence.go", "blockpool.go", "limits.go", "profile.go", "derive.go", "calibration.go", "extents.go", "blocktable.go", "piece.go", "stepnoise.go", "stepgroup.go", "coldstart.go"} {
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
