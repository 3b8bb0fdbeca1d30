package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// secretFiles are the keys that name a file a node must be able to read, and whether only the node's user should be.
var secretFiles = map[string]bool{
	"cert": false, "ca": false, "tls_cert": false, "proxy_ca": false, "key": true, "tls_key": true, "api_key_file": true, "token_file": true,
}

// Checked is what Check found besides mistakes.
type Checked struct {
	// Kind is what the text is: "local config", "spec".
	Kind string
	// Warnings are what is allowed and probably not meant; nil for none. Each has its line.
	Warnings *Error
}

// Check judges a config file's text as Decode does, and the files that it names: certificates, keys and credentials must be
// readable. knownGPU tells GPU types whose speed is known.
func Check(name string, text []byte, knownGPU func(string) bool) (Checked, error) {
	cfg, err := Decode(name, text)
	c := Checked{Kind: RoleOf(text) + " config"}
	if err != nil {
		return c, err
	}
	missing, exposed := fileProblems(reflect.ValueOf(cfg).Elem(), "$")
	if err := reported(name, text, missing); err != nil {
		return c, err
	}
	if l, ok := cfg.(*Local); ok {
		exposed = append(exposed, unknownGPUs(l, knownGPU)...)
	}
	if err := reported(name, text, exposed); !errors.As(err, &c.Warnings) && err != nil {
		return c, err
	}
	return c, nil
}

// reported places problems in a text.
func reported(name string, text []byte, problems []Problem) error {
	if len(problems) == 0 {
		return nil
	}
	doc, err := strict.Parse(name, text)
	if err != nil {
		return err
	}
	role, _ := doc.Text("role")
	doc.Decode(blank(role))
	doc.Report(problems)
	return doc.Err()
}

// fileProblems looks at every file that a value's keys name.
func fileProblems(v reflect.Value, path string) (missing, exposed []Problem) {
	look := func(at, file string, secret bool) {
		if file == "" {
			return
		}
		f, err := os.Open(file)
		if err != nil {
			why := err
			if e := (*fs.PathError)(nil); errors.As(err, &e) {
				why = e.Err
			}
			missing = append(missing, Problem{Path: at, Reason: fmt.Sprintf("file %s cannot be read: %v", file, why), Hint: "write the file's path; relative paths count from the config file"})
			return
		}
		defer func() { _ = f.Close() }()
		if st, err := f.Stat(); err == nil && secret && st.Mode().Perm()&0o004 != 0 {
			exposed = append(exposed, Problem{Path: at, Reason: fmt.Sprintf("every user of this machine can read %s", file), Hint: "chmod 600 " + file})
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return fileProblems(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			m, e := fileProblems(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
			missing, exposed = append(missing, m...), append(exposed, e...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			key, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
			at, f := path+"."+key, v.Field(i)
			if secret, ok := secretFiles[key]; ok && f.Kind() == reflect.String {
				look(at, f.String(), secret)
				continue
			}
			if files, ok := f.Interface().(map[string]string); ok && key == "header_files" {
				for name, file := range files {
					look(at+"."+strict.Key(name), file, true)
				}
				continue
			}
			m, e := fileProblems(f, at)
			missing, exposed = append(missing, m...), append(exposed, e...)
		}
	}
	return missing, exposed
}

// unknownGPUs warns of GPU types whose speed is not known.
func unknownGPUs(c *Local, known func(string) bool) (out []Problem) {
	warn := func(path, gpu string) {
		if gpu != "" && !known(gpu) {
			out = append(out, Problem{
				Path: path, Reason: fmt.Sprintf("unknown GPU type %q: the worker starts with the speed of a modest one, and its own is learned within minutes", gpu),
				Hint: "write a type such as H100, A100, L40S or L4, with x4 behind it for four, or leave gpu out",
			})
		}
	}
	for i := range c.Workers {
		warn(fmt.Sprintf("$.workers[%d].gpu", i), c.Workers[i].GPU)
	}
	for i := range c.Discover.DNS {
		warn(fmt.Sprintf("$.discover.dns[%d].gpu", i), c.Discover.DNS[i].GPU)
	}
	return out
}

// LooksLike is the role whose keys a text without a role has, more of them than of a spec's; empty for none.
func LooksLike(text []byte) string {
	doc, err := strict.Parse("", text)
	if err != nil {
		return ""
	}
	keys := doc.Keys()
	best, most := "", matches(keys, reflect.TypeFor[spec.Spec]())
	for _, role := range []string{RoleLocal, RoleRegional, RoleGlobal, RoleWorker} {
		if n := matches(keys, reflect.TypeOf(blank(role)).Elem()); n > most {
			best, most = role, n
		}
	}
	return best
}

// matches counts the keys that are a struct's.
func matches(keys []string, t reflect.Type) (n int) {
	for i := range t.NumField() {
		if key, _, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ","); slices.Contains(keys, key) {
			n++
		}
	}
	return n
}

// NoRole is the mistake of a config file that does not name its role, and looks like one of that role.
func NoRole(name string, text []byte, role string) error {
	doc, err := strict.Parse(name, text)
	if err != nil {
		return err
	}
	doc.Report([]Problem{{Path: "$", Reason: "no role: looks like " + role, Hint: "write role: " + role + " as the first line of " + filepath.Base(name)}})
	return doc.Err()
}
