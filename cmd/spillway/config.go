package main

import (
	"bufio"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/spec"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Write, check and describe config files", GroupID: "prepare"}
	cmd.AddCommand(configInitCommand(), configCheckCommand(), configDescribeCommand(), configKeyCommand())
	return cmd
}

func configInitCommand() *cobra.Command {
	var dir string
	layout := fleet.DefaultLayout()
	cmd := &cobra.Command{
		Use:   "init [ROLE] | --planet DIR",
		Short: "Write a commented config file for one role, or every file of a planet",
		Long: `Write a commented config file for one role (global, regional, local, worker) or the spec to standard output, or, with
--planet, the files, certificates and keys of a whole planet on this machine into a folder.`,
		Example: "  spillway config init regional > gateway.yaml\n  spillway config init --planet ./planet --regions 2",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			out := cmd.OutOrStdout()
			switch {
			case dir == "" && len(args) == 1:
				return config.Init(out, args[0])
			case dir == "" || len(args) == 1:
				return errors.New("name one role (global, regional, local, worker, spec), or a folder with --planet")
			}
			p, err := fleet.Write(dir, layout)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "wrote a planet of %d nodes to %s; start all of it with\n  spillway demo --processes --dir %s\nor any node by hand, for example\n",
				len(p.Nodes), p.Dir, dir)
			for _, role := range []string{"worker", "local", "regional", "global"} {
				fmt.Fprintf(out, "  spillway %s -c %s\n", role, p.Config(p.Of(role)[0]))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "planet", "", "write a whole planet into this folder")
	layoutFlags(cmd, &layout)
	return cmd
}

func configCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE...",
		Short:   "Check config files and specs; every mistake is shown with its line and what to write instead",
		Example: "  spillway config check gateway.yaml spec.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			bad := 0
			for _, name := range args {
				kind, err := checkFile(name)
				if err != nil {
					bad++
					fmt.Fprintln(cmd.ErrOrStderr(), err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: a valid %s\n", name, kind)
			}
			if bad > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "spillway: %d of %d files need attention\n", bad, len(args))
				return errQuiet
			}
			return nil
		},
	}
}

// checkFile reads a role's config file, or a spec where no role is named, and says which it was.
func checkFile(name string) (string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("reading the file: %w", err)
	}
	if role := config.RoleOf(text); role != "" {
		_, err := config.LoadFile(name)
		return role + " config", err
	}
	_, err = spec.Decode(name, text)
	return "spec", err
}

func configDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "describe ROLE",
		Short:   "Print every key of a role's config file with its type, default and meaning",
		Example: "  spillway config describe global\n  spillway config describe spec",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return config.Describe(cmd.OutOrStdout(), args[0])
		},
	}
}

func configKeyCommand() *cobra.Command {
	var stdin bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Make an API key and the hash of it that a spec holds",
		Long: `Make an API key and the hash of it that a spec holds. The key is shown once and kept nowhere: give it to the
tenant, and put the hash under the tenant's keys.`,
		Example: "  spillway config key\n  spillway config key --stdin < existing.key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stdin {
				line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
				if key := strings.TrimSpace(line); key != "" {
					fmt.Fprintln(cmd.OutOrStdout(), spec.HashKey(key))
					return nil
				}
				return fmt.Errorf("standard input holds no key: %w", err)
			}
			var b [32]byte
			if _, err := rand.Read(b[:]); err != nil {
				return fmt.Errorf("drawing a key: %w", err)
			}
			key := "sk-" + base64.RawURLEncoding.EncodeToString(b[:])
			fmt.Fprintf(cmd.OutOrStdout(), "key:  %s\nhash: %s\n", key, spec.HashKey(key))
			return nil
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "hash the key on standard input instead of making one")
	return cmd
}
