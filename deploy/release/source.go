package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// source is the state of the source tree that a release is built from.
type source struct {
	version string // of git describe: v1.2.3, v1.2.3-14-g0123456789ab, 0123456789ab; with -dirty for uncommitted changes
	commit  string
	date    time.Time // of the commit or $SOURCE_DATE_EPOCH; the time of every file in the results
}

// describeSource reads the version and the time of the commit from git. version replaces that of git describe if not empty.
func describeSource(ctx context.Context, version string) (s source, err error) {
	// 12 digits: without --abbrev their number depends on how many objects the clone has.
	if s.version = version; version == "" {
		if s.version, err = runGit(ctx, "describe", "--tags", "--always", "--dirty", "--abbrev=12"); err != nil {
			return s, err
		}
	}
	if s.commit, err = runGit(ctx, "rev-parse", "HEAD"); err != nil {
		return s, err
	}
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		if epoch, err = runGit(ctx, "log", "-1", "--format=%ct"); err != nil {
			return s, err
		}
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return s, fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970", epoch)
	}
	s.date = time.Unix(seconds, 0).UTC()
	_, err = formatPackageVersion(s.version, s.date)
	return s, err
}

func runGit(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: a release is built in a clone of the repository", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

var (
	taggedVersion   = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z.]+?))??(?:-(\d+-g[0-9a-f]+))?(-dirty)?$`)
	untaggedVersion = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)
)

// formatPackageVersion returns a version for deb and rpm, whose order is that of the commits: both sort ~ before the end of the
// text and + after it, and allow no hyphen.
//
//	v1.2.3                     1.2.3
//	v1.2.3-rc.1                1.2.3~rc.1
//	v1.2.3-14-g0123456789ab    1.2.3+14.g0123456789ab
//	0123456789ab (no tag yet)  0.0.0+git20261124023800.0123456789ab
func formatPackageVersion(version string, date time.Time) (string, error) {
	if m := untaggedVersion.FindStringSubmatch(version); m != nil {
		return "0.0.0+git" + date.Format("20060102150405") + "." + m[1] + strings.Replace(m[2], "-", ".", 1), nil
	}
	m := taggedVersion.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("version %q is neither a tag like v1.2.3 or v1.2.3-rc.1, nor what git describe prints", version)
	}
	out := m[1]
	if m[2] != "" {
		out += "~" + m[2]
	}
	var later []string
	if m[3] != "" {
		later = append(later, strings.Replace(m[3], "-", ".", 1))
	}
	if m[4] != "" {
		later = append(later, "dirty")
	}
	if len(later) > 0 {
		out += "+" + strings.Join(later, ".")
	}
	return out, nil
}
