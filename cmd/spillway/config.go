package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write, check and describe config files", GroupID: "prepare"}
	cmd.AddCommand(newConfigInitCommand(), newConfigCheckCommand(), newConfigDescribeCommand(), newConfigSchemaCommand(), newConfigKeyCommand())
	return cmd
}

func newConfigInitCommand() *cobra.Command {
	var dir string
	layout := fleet.DefaultLayout()
	cmd := &cobra.Command{
		Use:   "init ROLE | --fleet DIR",
		Short: "Write a commented config file for one role, or all files of a fleet",
		Long: `Write a commented config file for one role (global, regional, local, worker) or the spec to standard output. With --fleet,
write the config files, certificates and keys of a complete fleet on this machine to a folder.`,
		Example: "  spillway config init regional > gateway.yaml\n  spillway config init --fleet ./fleet --regions 2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case dir == "" && len(args) == 1:
				return config.WriteExample(out, args[0])
			case dir == "" || len(args) == 1:
				return newUsageError("config init ROLE | --fleet DIR", "ROLE is one of global, regional, local, worker, spec")
			}
			p, err := fleet.WriteFiles(dir, layout)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "wrote a fleet of %d nodes to %s; start all of them with\n  spillway demo --processes --dir %s\nor single nodes, for example\n",
				len(p.Nodes), p.Dir, dir)
			for _, role := range []string{"worker", "local", "regional", "global"} {
				fmt.Fprintf(out, "  spillway %s -c %s\n", role, p.ConfigPath(p.NodesByRole(role)[0]))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "fleet", "", "write all files of a fleet to this folder")
	addDeprecatedFlag(cmd.Flags(), "planet", "fleet")
	addLayoutFlags(cmd, &layout)
	return cmd
}

func newConfigCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE...",
		Short: "Check config files and specs; every mistake is shown with its line and a correction",
		Long: `Check config files and specs; every mistake is shown with its line and a correction. Certificate, key and credential files
that a config names must exist. Warnings do not fail the check. The file - is standard input.`,
		Example: "  spillway config check gateway.yaml spec.yaml\n  spillway config check - < gateway.yaml",
		Args:    requireMinArgs("config check FILE...", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bad := 0
			for _, name := range args {
				kind, err := checkConfigFile(cmd.InOrStdin(), cmd.ErrOrStderr(), name)
				if err != nil {
					bad++
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: a valid %s\n", name, kind)
			}
			if bad > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "spillway: %d of %d files are invalid\n", bad, len(args))
				return errAlreadyReported
			}
			return nil
		},
	}
}

// checkConfigFile checks a role's config file, or a spec if the file names no role. It returns which kind it is and writes
// warnings to out.
func checkConfigFile(in io.Reader, out io.Writer, name string) (string, error) {
	text, err := readFileOrStdin(in, name)
	if err != nil {
		return "", fmt.Errorf("reading the file: %w", err)
	}
	if config.RoleOf(text) != "" {
		c, err := config.CheckFile(name, text, perfmodel.IsKnownGPU)
		if c.Warnings != nil {
			fmt.Fprintf(out, "warning: %v\n", c.Warnings)
		}
		return c.Kind, err
	}
	if role := config.GuessRole(text); role != "" {
		return "", config.MissingRoleError(name, text, role)
	}
	s, alone, err := decodeSpec(name, text)
	if err == nil && alone {
		return describeStandaloneSpec(s), nil
	}
	return "spec", err
}

// decodeSpec decodes a spec file. alone reports that it has neither zone nor services: such a spec is for a gateway or zone
// without a global tier.
func decodeSpec(name string, text []byte) (s *spec.Spec, alone bool, err error) {
	if doc, err := strict.Parse(name, text); err == nil && !doc.HasKey("zone") && !doc.HasKey("services") {
		s, err := spec.DecodeStandalone(name, text)
		return s, true, err
	}
	s, err = spec.Decode(name, text)
	return s, false, err
}

// describeStandaloneSpec describes a spec without zone and services and names tenants in it that no request can have.
func describeStandaloneSpec(s *spec.Spec) string {
	kind := "spec for a gateway or zone without a global tier (with one, it also needs zone, services and regions)"
	if names := s.UnreachableTenants(); len(names) > 0 {
		kind += "\n  note: no request can belong to tenant " + strings.Join(names, ", ") + ": add a key with `spillway config key`"
	}
	return kind
}

// readFileOrStdin reads a file, or standard input for "-".
func readFileOrStdin(in io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(in, maxStdinBytes))
	}
	return os.ReadFile(name)
}

// maxStdinBytes bounds what is read from standard input, in bytes. Decoders of configs have lower limits.
const maxStdinBytes = 64 << 20

func newConfigDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "describe ROLE [KEY] | KEY",
		Short: "Describe the keys of config files: type, default and meaning",
		Long: `Describe the keys of the config file of a role (global, regional, local, worker) or of the spec: type, default and meaning.
KEY is the path of one key, such as limits.body_memory or workers[].gpu; of a section, its keys are described too. Without a
ROLE, KEY is looked up in all of them.`,
		Example: "  spillway config describe global\n  spillway config describe spec tenants\n  spillway config describe limits.body_memory",
		Args:    requireArgRange("config describe ROLE [KEY] | KEY", 1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 2:
				return config.DescribeKey(cmd.OutOrStdout(), args[0], args[1])
			case config.IsKind(args[0]):
				return config.DescribeConfig(cmd.OutOrStdout(), args[0])
			}
			return config.FindKey(cmd.OutOrStdout(), args[0])
		},
	}
}

func newConfigSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema ROLE",
		Short: "Print the JSON Schema of a config file or of the spec, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of the config file of a role (global, regional, local, worker) or of the spec. Editors
use it for completion and validation. It covers keys, types, defaults and descriptions; ` + "`spillway config check`" + ` checks more.`,
		Example: "  spillway config schema spec > spec.schema.json\n  spillway config schema local",
		Args:    requireArgs("config schema ROLE", 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return config.WriteSchema(cmd.OutOrStdout(), args[0])
		},
	}
}

func newConfigKeyCommand() *cobra.Command {
	var stdin bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Create an API key and its hash for the spec",
		Long: `Create an API key and its hash for the spec. The key is printed once and not stored: give it to the tenant, and add the
hash to the tenant's keys in the spec.`,
		Example: "  spillway config key\n  spillway config key --stdin < existing.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stdin {
				line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if key := strings.TrimSpace(line); key != "" {
					fmt.Fprintln(cmd.OutOrStdout(), spec.HashKey(key))
					return nil
				}
				return fmt.Errorf("standard input contains no key: %w", err)
			}
			key, err := newAPIKey()
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "key:  %s\nhash: %s\n", key, spec.HashKey(key))
			return nil
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "hash the key on standard input instead of creating one")
	return cmd
}
