package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// sourceFile is one parsed source file.
type sourceFile struct {
	pkg    string // folder relative to the module
	path   string
	syntax *ast.File
}

// moduleRoot finds the module by walking up to its go.mod.
func moduleRoot() (string, error) {
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

// loadFiles parses every Go file of the module, tests included.
func loadFiles(root string, fset *token.FileSet) ([]sourceFile, error) {
	var files []sourceFile
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
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		pkg, err := filepath.Rel(root, filepath.Dir(path))
		files = append(files, sourceFile{pkg: filepath.ToSlash(pkg), path: path})
		return err
	})
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(files))
	var next atomic.Int64
	var parsers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		parsers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(files); i = int(next.Add(1)) - 1 {
				f := &files[i]
				mode := parser.ParseComments
				if f.isTest() {
					mode |= parser.SkipObjectResolution // only words are counted in tests
				}
				f.syntax, errs[i] = parser.ParseFile(fset, f.path, nil, mode)
			}
		})
	}
	parsers.Wait()
	return files, errors.Join(errs...)
}

// isTest reports whether a file is compiled for tests only.
func (f sourceFile) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// isGenerated reports whether a tool wrote the file.
func (f sourceFile) isGenerated() bool { return ast.IsGenerated(f.syntax) }

// importPaths lists a file's imports, those of the module relative to it.
func (f sourceFile) importPaths() []string {
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

// importName reports the name under which a file uses an imported package, or "".
func (f sourceFile) importName(path string) string {
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
