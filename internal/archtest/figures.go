package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// figure is one measured number and the source positions or names that it counts.
type figure struct {
	count int
	at    []string
}

// figures are the measured numbers by key: a package, a type or a file.
type figures map[string]*figure

func (fs figures) addPlace(key, place string) {
	f := fs[key]
	if f == nil {
		f = &figure{}
		fs[key] = f
	}
	f.count++
	f.at = append(f.at, place)
}

func (fs figures) countOf(key string) int {
	if f := fs[key]; f != nil {
		return f.count
	}
	return 0
}

// aboveLimit returns the counts that need a baseline line.
func (fs figures) aboveLimit(limit int) map[string]int {
	above := map[string]int{}
	for key, f := range fs {
		if f.count > limit {
			above[key] = f.count
		}
	}
	return above
}

// maxPlaces is how many positions a failure lists.
const maxPlaces = 15

func (f *figure) listPlaces() string {
	if len(f.at) <= maxPlaces {
		return strings.Join(f.at, ", ")
	}
	return fmt.Sprintf("%s, and %d more", strings.Join(f.at[:maxPlaces], ", "), len(f.at)-maxPlaces)
}

// idioms are the one-word functions and methods that the Go community reads as verb and object.
var idioms = setOf(`main init New Close String Len Less Swap Push Pop Start Stop Addr Reload Read Write ServeHTTP
	Error Unwrap Is As Next Reset Name Collect Describe`)

// interfaceMethods are one-word methods here that implement interfaces of net, context, net/http and raft, in this
// order. They are exempt as methods only. A new one belongs here when its interface is not ours.
var interfaceMethods = setOf(`
	Accept Dial Network Temporary Timeout
	Deadline Done Err Value
	Flush Header
	Apply Snapshot Restore Persist Release Set`)

func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(words) {
		set[w] = true
	}
	return set
}

// isOneWord reports whether a name has no inner upper-case letter and no underscore, such as take or Take.
func isOneWord(name string) bool {
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) || r == '_' {
			return false
		}
	}
	return true
}

// eachFunc calls do for each function of the files that are neither tests nor generated. The receiver is empty for
// a function.
func eachFunc(files []sourceFile, do func(f sourceFile, receiver string, fn *ast.FuncDecl)) {
	for _, f := range files {
		if f.isTest() || f.isGenerated() {
			continue
		}
		for _, d := range f.syntax.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				do(f, receiverName(fn), fn)
			}
		}
	}
}

// receiverName returns the type of a method's receiver without pointer and type parameters.
func receiverName(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		default:
			return ""
		}
	}
}

// oneWordShare measures the percentage, rounded up, of functions in the module whose name is one word and no idiom.
func oneWordShare(files []sourceFile) figures {
	type share struct{ oneWord, all int }
	packages := map[string]*share{}
	total := &share{}
	eachFunc(files, func(f sourceFile, receiver string, fn *ast.FuncDecl) {
		p := packages[f.pkg]
		if p == nil {
			p = &share{}
			packages[f.pkg] = p
		}
		p.all++
		total.all++
		name := fn.Name.Name
		if isOneWord(name) && name != "_" && !idioms[name] && !(receiver != "" && interfaceMethods[name]) {
			p.oneWord++
			total.oneWord++
		}
	})
	if total.all == 0 {
		return figures{}
	}
	f := &figure{count: (100*total.oneWord + total.all - 1) / total.all}
	names := slices.SortedFunc(maps.Keys(packages), func(a, b string) int { return packages[b].oneWord - packages[a].oneWord })
	for _, name := range names {
		if p := packages[name]; p.oneWord > 0 {
			f.at = append(f.at, fmt.Sprintf("%s %d of %d", name, p.oneWord, p.all))
		}
	}
	return figures{"module": f}
}

// repeatableTypes are type names that every package may declare.
var repeatableTypes = setOf("Config Options Server Client Error")

// typeNamePackages measures in how many packages each type name is declared.
func typeNamePackages(files []sourceFile) figures {
	found, seen := figures{}, map[string]bool{}
	for _, f := range files {
		if f.isTest() || f.isGenerated() {
			continue
		}
		for _, name := range typeNames(f) {
			if key := name + " " + f.pkg; !seen[key] && !repeatableTypes[name] {
				seen[key] = true
				found.addPlace(name, f.pkg)
			}
		}
	}
	return found
}

func typeNames(f sourceFile) []string {
	var names []string
	for _, d := range f.syntax.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.TYPE {
			for _, s := range g.Specs {
				names = append(names, s.(*ast.TypeSpec).Name.Name)
			}
		}
	}
	return names
}

// typeMethods measures how many methods each type has.
func typeMethods(files []sourceFile) figures {
	found := figures{}
	eachFunc(files, func(f sourceFile, receiver string, fn *ast.FuncDecl) {
		if receiver != "" {
			found.addPlace(f.pkg+"."+receiver, fn.Name.Name)
		}
	})
	return found
}

// typeMethodFiles measures over how many files the methods of each type are spread.
func typeMethodFiles(files []sourceFile) figures {
	found, seen := figures{}, map[string]bool{}
	eachFunc(files, func(f sourceFile, receiver string, fn *ast.FuncDecl) {
		key := f.pkg + "." + receiver
		if receiver != "" && !seen[key+" "+f.path] {
			seen[key+" "+f.path] = true
			found.addPlace(key, filepath.Base(f.path))
		}
	})
	return found
}

// fileReceivers measures of how many types each file has methods.
func fileReceivers(files []sourceFile) figures {
	found, seen := figures{}, map[string]bool{}
	eachFunc(files, func(f sourceFile, receiver string, fn *ast.FuncDecl) {
		key := path.Join(f.pkg, filepath.Base(f.path))
		if receiver != "" && !seen[key+" "+receiver] {
			seen[key+" "+receiver] = true
			found.addPlace(key, receiver)
		}
	})
	return found
}

// exportedDecl is an exported package-level name outside chaos.
type exportedDecl struct {
	group      *ast.GenDecl // of a constant: the parenthesised list, which is used as a whole
	production bool         // production outside the package refers to it
	chaos      bool         // chaos refers to it
}

// chaosOnlyExports measures by package how many exported names no production package but chaos refers to. A type that
// such a package's remaining exported declarations mention counts as used by production, and so does a constant when
// another of its list is.
func chaosOnlyExports(files []sourceFile) figures {
	decls := map[string]*exportedDecl{} // by package, dot and name
	packageNames := map[string]string{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		packageNames[f.pkg] = f.syntax.Name.Name
		if !isChaos(f.pkg) && !f.isGenerated() {
			collectExports(f, decls)
		}
	}
	for _, f := range files {
		if !f.isTest() {
			markUses(f, packageNames, decls)
		}
	}
	usedGroups := map[*ast.GenDecl]bool{}
	for _, d := range decls {
		if d.group != nil && d.production {
			usedGroups[d.group] = true
		}
	}
	chaosOnly := func(key string) bool {
		d := decls[key]
		return d != nil && d.chaos && !d.production && !(d.group != nil && usedGroups[d.group])
	}
	mentioned := mentionedTypes(files, chaosOnly)
	found := figures{}
	for _, key := range slices.Sorted(maps.Keys(decls)) {
		if chaosOnly(key) && !mentioned[key] {
			dot := strings.LastIndexByte(key, '.')
			found.addPlace(key[:dot], key[dot+1:])
		}
	}
	return found
}

// isChaos reports whether a package is part of what breaks things on purpose.
func isChaos(pkg string) bool { return anyOf(chaosFolders...)(pkg) }

func collectExports(f sourceFile, decls map[string]*exportedDecl) {
	add := func(name *ast.Ident, group *ast.GenDecl) {
		if name.IsExported() {
			decls[f.pkg+"."+name.Name] = &exportedDecl{group: group}
		}
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				add(d.Name, nil)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					add(s.Name, nil)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if d.Tok == token.CONST {
							add(name, d)
						} else {
							add(name, nil)
						}
					}
				}
			}
		}
	}
}

// markUses marks the names that a file refers to as package.Name.
func markUses(f sourceFile, packageNames map[string]string, decls map[string]*exportedDecl) {
	imported := map[string]string{} // local name to package
	for _, spec := range f.syntax.Imports {
		pkg := strings.TrimPrefix(strings.Trim(spec.Path.Value, `"`), module+"/")
		name := packageNames[pkg]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		imported[name] = pkg
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Obj != nil {
			return true
		}
		if d := decls[imported[x.Name]+"."+sel.Sel.Name]; d != nil {
			if isChaos(f.pkg) {
				d.chaos = true
			} else {
				d.production = true
			}
		}
		return true
	})
}

// mentionedTypes returns the names that exported declarations outside chaos mention in signatures, exported fields and
// types of variables. Declarations that skip holds for do not count.
func mentionedTypes(files []sourceFile, skip func(key string) bool) map[string]bool {
	mentioned := map[string]bool{}
	for _, f := range files {
		if f.isTest() || isChaos(f.pkg) {
			continue
		}
		mention := func(n ast.Node) {
			ast.Inspect(n, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					mentioned[f.pkg+"."+name.Name] = true
				}
				return true
			})
		}
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				owner := receiverName(d)
				if d.Name.IsExported() && (owner == "" && !skip(f.pkg+"."+d.Name.Name) || owner != "" && !skip(f.pkg+"."+owner)) {
					mention(d.Type)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && !skip(f.pkg+"."+s.Name.Name) {
							mentionVisible(s.Type, mention)
						}
					case *ast.ValueSpec:
						if s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) && !skip(f.pkg+"."+s.Names[0].Name) {
							mention(s.Type)
						}
					}
				}
			}
		}
	}
	return mentioned
}

// mentionVisible mentions the types of a struct's exported and embedded fields, or the whole of any other type.
func mentionVisible(t ast.Expr, mention func(ast.Node)) {
	s, ok := t.(*ast.StructType)
	if !ok {
		mention(t)
		return
	}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			mention(field.Type)
		}
	}
}
