package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// file is one parsed source file that is not a test.
type file struct {
	pkg    string // folder relative to the module
	path   string
	syntax *ast.File
}

// root finds the module by walking up to its go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", fmt.Errorf("no go.mod above %s", dir)
		}
		dir = up
	}
}

// load parses every non-test Go file of the module.
func load(root string, fset *token.FileSet) ([]file, error) {
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		files = append(files, file{pkg: filepath.ToSlash(pkg), path: path, syntax: syntax})
		return err
	})
	return files, err
}

// imports lists a file's imports, those of the module relative to it.
func (f file) imports() []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		out = append(out, strings.TrimPrefix(p, module+"/"))
	}
	return out
}

// local reports the name under which a file uses an imported package, or "".
func (f file) local(path string) string {
	for _, spec := range f.syntax.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); p != path {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		base := path[strings.LastIndexByte(path, '/')+1:]
		if base == "v2" {
			return "rand"
		}
		return base
	}
	return ""
}
