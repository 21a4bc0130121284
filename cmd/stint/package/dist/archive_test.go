package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// root is the repository, seen from this package's tests.
const root = "../../../.."

var date = time.Unix(1_893_501_000, 0).UTC()

func pack(t *testing.T, when time.Time, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeArchive(&b, "top", when, entries); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpack reads an archive whole.
func unpack(t *testing.T, data []byte) (headers []*tar.Header, contents map[string][]byte) {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if zip.Name != "" || !zip.ModTime.IsZero() {
		t.Errorf("the compressed file tells its name %q or time %v", zip.Name, zip.ModTime)
	}
	contents = map[string][]byte{}
	for in := tar.NewReader(zip); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
		contents[h.Name] = data
	}
}

func TestAnArchiveDependsOnItsContentsAlone(t *testing.T) {
	a, b, c := entry{"b", 0o755, []byte("program")}, entry{"docs/z.md", 0o644, []byte("z")}, entry{"docs/a.md", 0o644, nil}
	given := []entry{b, a, c}
	first := pack(t, date, given...)
	if !slices.EqualFunc(given, []entry{b, a, c}, func(x, y entry) bool { return x.name == y.name }) {
		t.Error("the caller's list was sorted")
	}
	if !bytes.Equal(first, pack(t, date, c, b, a)) {
		t.Error("the order in which entries are given shows in the bytes")
	}
	if bytes.Equal(first, pack(t, date.Add(time.Second), a, b, c)) {
		t.Error("the date is not in the archive")
	}
	headers, contents := unpack(t, first)
	var names []string
	for _, h := range headers {
		names = append(names, h.Name)
		if !h.ModTime.Equal(date) || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || len(h.PAXRecords) > 0 {
			t.Errorf("%s says more than it should: %+v", h.Name, h)
		}
	}
	if want := []string{"top", "top/b", "top/docs", "top/docs/a.md", "top/docs/z.md"}; !slices.Equal(names, want) {
		t.Errorf("the archive holds %q, want %q", names, want)
	}
	if headers[0].Typeflag != tar.TypeDir || headers[0].Mode != 0o755 || headers[1].Mode != 0o755 || headers[3].Mode != 0o644 {
		t.Error("a folder or a mode is wrong")
	}
	if string(contents["top/b"]) != "program" {
		t.Errorf("the content is %q", contents["top/b"])
	}
}

func TestTargets(t *testing.T) {
	all, err := parseTargets(targets)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []target{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}} {
		if !slices.Contains(all, want) {
			t.Errorf("%s is not made unless it is asked for", want)
		}
	}
	if two, err := parseTargets(" linux/amd64,windows/amd64 "); err != nil || len(two) != 2 || two[0].binaryName() != "stint" || two[1].binaryName() != "stint.exe" {
		t.Errorf("%v, %v", two, err)
	}
	for _, list := range []string{"", " ", "linux", "/amd64", "linux/", "linux/arm/v7", "linux/amd64 linux/amd64"} {
		if all, err := parseTargets(list); err == nil {
			t.Errorf("%q is accepted: %v", list, all)
		}
	}
}

func TestTheBuildDependsOnNoVariable(t *testing.T) {
	for _, name := range []string{"GOFLAGS", "GOEXPERIMENT", "GOAMD64", "GOARM64", "CGO_ENABLED", "GOOS", "GOWORK"} {
		t.Setenv(name, "mine")
	}
	env := target{"plan9", "arm"}.environ()
	if i := slices.IndexFunc(env, func(kv string) bool { return strings.HasSuffix(kv, "=mine") }); i >= 0 {
		t.Errorf("the build sees %s", env[i])
	}
	for _, want := range []string{"GOENV=off", "CGO_ENABLED=0", "GOOS=plan9", "GOARCH=arm"} {
		if !slices.Contains(env, want) {
			t.Errorf("the build does not see %s", want)
		}
	}
	if os.Getenv("PATH") != "" && !slices.Contains(env, "PATH="+os.Getenv("PATH")) {
		t.Error("the build has no PATH")
	}
}

func TestWrongUseIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		args  []string
		epoch string
		want  string
	}{
		{[]string{"-version", ""}, "1", "-version"},
		{[]string{"-version", "../x"}, "1", "-version"},
		{[]string{"-version", "-x"}, "1", "-version"},
		{[]string{"-version", "1 -s"}, "1", "-version"},
		{[]string{"-version", "1", "-targets", "linux"}, "1", "-targets"},
		{[]string{"-version", "1", "more"}, "1", `"more"`},
		{[]string{"-version", "1"}, "yesterday", "SOURCE_DATE_EPOCH"},
		{[]string{"-version", "1"}, "-1", "SOURCE_DATE_EPOCH"},
	} {
		err := run(t.Context(), append([]string{"-out", out}, c.args...), func(string) string { return c.epoch }, io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want it to name %s", c.args, err, c.want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the folder was made")
	}
}

func TestSourceDate(t *testing.T) {
	if d, err := sourceDate(t.Context(), ".", "1893501000"); err != nil || !d.Equal(date) {
		t.Errorf("%v, %v", d, err)
	}
	if _, err := sourceDate(t.Context(), t.TempDir(), ""); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("without git: %v, want advice", err)
	}
}

func TestChecksumsAreThoseOfTheFiles(t *testing.T) {
	dir := t.TempDir()
	var sums checksums
	for name, text := range map[string]string{"a": "x", "b": ""} {
		if err := sums.create(dir, name, func(w io.Writer) error { _, err := io.WriteString(w, text); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if err := sums.write(dir); err != nil {
		t.Fatal(err)
	}
	checkSums(t, dir, 2)
	failed := errors.New("no more")
	if err := sums.create(dir, "c", func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a failed write is %v", err)
	}
}

// checkSums does what sha256sum -c does, and expects so many files.
func checkSums(t *testing.T, dir string, files int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != files {
		t.Errorf("%d checksums, want %d", len(lines), files)
	}
	for _, line := range lines {
		digest, name, _ := strings.Cut(line, "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
			t.Errorf("%s has not the checksum %s", name, digest)
		}
	}
}

// TestAModuleWithoutALicenceIsNotPacked makes a folder like a module's.
func TestAModuleWithoutALicenceIsNotPacked(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"license.go", "README.md", "licences.txt.bak"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("no"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := appendLicences(&b, "m v1", dir); err == nil || !strings.Contains(err.Error(), "m v1") || b.Len() > 0 {
		t.Errorf("%v, %q", err, b.String())
	}
	for _, name := range []string{"LICENSE", "Licence.txt", "COPYING", "NOTICE-x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("terms of "+name+"\r\nand so on\r\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := appendLicences(&b, "m v1", dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"m v1 (LICENSE)", "terms of LICENSE\nand so on\n", "m v1 (Licence.txt)", "terms of COPYING", "terms of NOTICE-x"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "no\n") {
		t.Errorf("a file that is no licence is among them:\n%s", b.String())
	}
}

func TestACancelledBuildLeavesNoChecksums(t *testing.T) {
	t.Chdir(root)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out := t.TempDir()
	for _, name := range []string{sumsName, "stint-old-linux-amd64.tar.gz", "mine.txt"} {
		if err := os.WriteFile(filepath.Join(out, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(ctx, []string{"-version", "1", "-out", out}, func(string) string { return "1" }, io.Discard, io.Discard); err == nil {
		t.Error("no error")
	}
	left, err := os.ReadDir(out)
	if err != nil || len(left) != 1 || left[0].Name() != "mine.txt" {
		t.Errorf("left are %v (%v), want what was not an archive alone", left, err)
	}
}
