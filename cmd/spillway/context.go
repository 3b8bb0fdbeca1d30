package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// contextFile is the file of an operator's contexts.
type contextFile struct {
	// Current is the context that commands use without --context, --server or the environment. Empty: none.
	Current  string            `yaml:"current"`
	Contexts []operatorContext `yaml:"contexts"`
}

// operatorContext is how one fleet is reached. Relative paths are relative to the folder of the file.
type operatorContext struct {
	Name      string   `yaml:"name"`
	Servers   []string `yaml:"servers"` // tried in order
	Cert      string   `yaml:"cert"`
	Key       string   `yaml:"key"` // path of the private key
	CA        string   `yaml:"ca"`
	TokenFile string   `yaml:"token_file"`
}

const (
	// maxContexts and maxContextFileBytes bound the file.
	maxContexts         = 200
	maxContextFileBytes = 1 << 20
)

// contextFilePath returns $XDG_CONFIG_HOME/spillway/contexts.yaml, or the same in the user's folder of configurations.
func contextFilePath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("looking for the contexts: %w\nhint: set XDG_CONFIG_HOME", err)
		}
	}
	return filepath.Join(dir, "spillway", "contexts.yaml"), nil
}

// readContexts reads the file of contexts. Without a file there are none.
func readContexts() (*contextFile, error) {
	path, err := contextFilePath()
	if errors.Is(err, fs.ErrNotExist) || err != nil && os.Getenv("HOME") == "" {
		return &contextFile{}, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &contextFile{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the contexts: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxContextFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the contexts: %w", err)
	}
	return decodeContexts(path, text)
}

func decodeContexts(path string, text []byte) (*contextFile, error) {
	if len(text) > maxContextFileBytes {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxContextFileBytes)
	}
	doc, err := strict.Parse(path, text)
	if err != nil {
		return nil, err
	}
	out := &contextFile{}
	doc.Decode(out)
	if err := doc.Err(); err != nil {
		return nil, err
	}
	if len(out.Contexts) > maxContexts {
		return nil, fmt.Errorf("%s has %d contexts: the most is %d", path, len(out.Contexts), maxContexts)
	}
	seen := map[string]bool{}
	for i := range out.Contexts {
		c := &out.Contexts[i]
		switch {
		case c.Name == "":
			return nil, fmt.Errorf("%s: contexts[%d] has no name", path, i)
		case seen[c.Name]:
			return nil, fmt.Errorf("%s: two contexts are called %q: rename one", path, c.Name)
		case len(c.Servers) == 0:
			return nil, fmt.Errorf("%s: context %s has no servers: write servers: [https://host:port]", path, c.Name)
		}
		seen[c.Name] = true
		c.resolvePaths(filepath.Dir(path))
	}
	return out, nil
}

func (c *operatorContext) resolvePaths(dir string) {
	for _, p := range []*string{&c.Cert, &c.Key, &c.CA, &c.TokenFile} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// findContext returns a context by name. An unknown name is an error that lists the known ones.
func (f *contextFile) findContext(name string) (*operatorContext, error) {
	for i := range f.Contexts {
		if f.Contexts[i].Name == name {
			return &f.Contexts[i], nil
		}
	}
	hint := "`spillway context add " + name + " --server https://host:port` adds it"
	if names := f.listNames(); len(names) > 0 {
		hint = "there are " + strings.Join(names, ", ") + "; " + hint
	}
	return nil, newUsageMistake(fmt.Errorf("no context is called %q\nhint: %s", name, hint))
}

func (f *contextFile) listNames() (names []string) {
	for i := range f.Contexts {
		names = append(names, f.Contexts[i].Name)
	}
	return names
}

// writeContexts replaces the file of contexts. Its mode admits its owner only.
func writeContexts(f *contextFile) error {
	path, err := contextFilePath()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing the contexts: %w", err)
	}
	temp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(temp, strict.Encode(f), 0o600); err != nil {
		return fmt.Errorf("writing the contexts: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("writing the contexts: %w", errors.Join(err, os.Remove(temp)))
	}
	return nil
}

func newContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context list|use|add|remove",
		Short: "Name the fleets that commands are sent to: servers and certificate files",
		Long: `Name the fleets that commands are sent to: servers and certificate files. Contexts are in
$XDG_CONFIG_HOME/spillway/contexts.yaml (default: ~/.config/spillway/contexts.yaml). A command takes, in this order:
  --server        addresses, with --cert, --key and --ca or --token-file and --ca
  --context       a context; flags override its parts
  environment     SPILLWAY_SERVER, SPILLWAY_CERT, SPILLWAY_KEY, SPILLWAY_CA, SPILLWAY_TOKEN_FILE; or SPILLWAY_CONTEXT
  current         the context that ` + "`spillway context use`" + ` selected
  this machine    the nodes that this user runs`,
		GroupID: "operate",
		Args:    rejectUnknownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newContextListCommand(), newContextUseCommand(), newContextAddCommand(), newContextRemoveCommand())
	return cmd
}

// contextRow is one context as it is listed.
type contextRow struct {
	Name    string   `json:"name"`
	Current bool     `json:"current"`
	Servers []string `json:"servers"`
	Login   string   `json:"login"` // the file with the certificate or token
}

func newContextListCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the contexts; * marks the current one",
		Example: "  spillway context list\n  spillway context list -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			rows := []contextRow{}
			for i := range f.Contexts {
				c := &f.Contexts[i]
				rows = append(rows, contextRow{c.Name, c.Name == f.Current, c.Servers, cmp.Or(c.TokenFile, c.Cert)})
			}
			if isStructured(output) {
				return printStructured(cmd.OutOrStdout(), output, itemList[contextRow]{rows})
			}
			if len(rows) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "no contexts: `spillway context add NAME --server https://host:port` adds one")
				return nil
			}
			writeTable(cmd.OutOrStdout(), func(t io.Writer) {
				fmt.Fprintln(t, "CURRENT\tNAME\tSERVERS\tLOGIN")
				for _, r := range rows {
					mark := ""
					if r.Current {
						mark = "*"
					}
					fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", mark, r.Name, strings.Join(r.Servers, ","), dashIfEmpty(r.Login))
				}
			})
			return nil
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func completeContextNames(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	f, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return f.listNames(), cobra.ShellCompDirectiveNoFileComp
}

func newContextUseCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:               "use NAME | --none",
		Short:             "Select the context of later commands",
		Example:           "  spillway context use production\n  spillway context use --none",
		ValidArgsFunction: completeContextNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || none == (len(args) == 1) {
				return newUsageError("context use NAME | --none", "")
			}
			f, err := readContexts()
			if err != nil {
				return err
			}
			f.Current = ""
			if !none {
				if _, err := f.findContext(args[0]); err != nil {
					return err
				}
				f.Current = args[0]
			}
			if err := writeContexts(f); err != nil {
				return err
			}
			if none {
				fmt.Fprintln(cmd.OutOrStdout(), "no context is selected: commands go to the nodes on this machine")
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "commands go to context %s\n", f.Current)
			return nil
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "select no context")
	return cmd
}

func newContextAddCommand() *cobra.Command {
	var (
		c            operatorContext
		replace, use bool
	)
	cmd := &cobra.Command{
		Use:     "add NAME --server ADDRESS",
		Short:   "Add a context: servers, and the files of a certificate or token",
		Example: "  spillway context add production --server https://g1.example:7443,https://g2.example:7443 --cert op.pem --key op.key --ca ca.pem --use",
		Args:    requireArgs("context add NAME --server ADDRESS", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Name = args[0]
			dir, err := os.Getwd()
			if err != nil {
				return fmt.Errorf("making the paths absolute: %w", err)
			}
			c.resolvePaths(dir)
			if err := c.checkComplete(); err != nil {
				return newUsageMistake(err)
			}
			f, err := readContexts()
			if err != nil {
				return err
			}
			if at := slices.Index(f.listNames(), c.Name); at >= 0 {
				if !replace {
					return fmt.Errorf("context %s exists already\nhint: --replace replaces it", c.Name)
				}
				f.Contexts = slices.Delete(f.Contexts, at, at+1)
			}
			if len(f.Contexts) >= maxContexts {
				return fmt.Errorf("there are %d contexts, the most that the file may have: remove one", len(f.Contexts))
			}
			f.Contexts = append(f.Contexts, c)
			if use {
				f.Current = c.Name
			}
			if err := writeContexts(f); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "added context %s\n", c.Name)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&c.Servers, "server", nil, "admin addresses, tried in order: https://host:port or unix:///path/to.sock")
	f.StringVar(&c.Cert, "cert", "", "operator certificate (PEM file)")
	f.StringVar(&c.Key, "key", "", "private key of --cert (PEM file)")
	f.StringVar(&c.CA, "ca", "", "CA of the nodes' certificates (PEM file)")
	f.StringVar(&c.TokenFile, "token-file", "", "file with a bearer token, instead of a certificate")
	f.BoolVar(&replace, "replace", false, "replace a context of the same name")
	f.BoolVar(&use, "use", false, "select the context for later commands")
	panicOnError(cmd.MarkFlagRequired("server"))
	return cmd
}

// checkComplete reports what a context lacks to reach its servers.
func (c *operatorContext) checkComplete() error {
	for _, s := range c.Servers {
		switch {
		case strings.HasPrefix(s, "unix://"):
		case !strings.HasPrefix(s, "https://"):
			return fmt.Errorf("server %q is not an address: write https://host:port or unix:///path/to/admin.sock", s)
		case c.CA == "" || c.TokenFile == "" && (c.Cert == "" || c.Key == ""):
			return fmt.Errorf("server %s needs --ca, and --cert with --key or --token-file", s)
		}
	}
	for _, path := range []string{c.Cert, c.Key, c.CA, c.TokenFile} {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("a file of the context: %w", err)
		}
	}
	return nil
}

func newContextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "remove NAME",
		Short:             "Remove a context; the files that it names stay",
		Example:           "  spillway context remove staging",
		Args:              requireArgs("context remove NAME", 1),
		ValidArgsFunction: completeContextNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := readContexts()
			if err != nil {
				return err
			}
			if _, err := f.findContext(args[0]); err != nil {
				return err
			}
			f.Contexts = slices.DeleteFunc(f.Contexts, func(c operatorContext) bool { return c.Name == args[0] })
			if f.Current == args[0] {
				f.Current = ""
			}
			if err := writeContexts(f); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "removed context %s\n", args[0])
			return nil
		},
	}
}
