package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/stint-dev/stint/cluster"
	"github.com/stint-dev/stint/persist"
)

// partTimeout bounds the wait for one part of a backup; the first comes when the
// server has taken a snapshot.
const partTimeout = 5 * time.Minute

// online copies the state of a running cluster.
func (c *backupCommand) online(w io.Writer) (err error) {
	if err := checkAddr(c.From); err != nil {
		return &optionError{"from", err.Error()}
	}
	if _, err := os.Lstat(c.File); err == nil {
		return fmt.Errorf("the backup %s is there already and is not replaced", c.File)
	}
	with := Config{RequirepassFile: c.PasswordFile}
	password, err := with.Password()
	if err != nil {
		return err
	}
	conf, err := (&statusCommand{Addr: []string{c.From}, Cacert: c.Cacert, Cert: c.Cert, Key: c.Key}).tlsConfig()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	nc, err := dialServer(ctx, c.From, conf)
	if err != nil {
		return fmt.Errorf("the server at %s cannot be reached: %s", c.From, dialReason(err, 10*time.Second))
	}
	defer nc.Close()
	q := newAsker(nc)
	ask := func(words ...string) (string, error) {
		_ = nc.SetDeadline(time.Now().Add(partTimeout))
		return q.do(words...)
	}
	if password != "" {
		if _, err := ask("AUTH", password); err != nil {
			return fmt.Errorf("the server at %s does not accept the password: %w", c.From, err)
		}
	}
	if _, err := ask("RAFT", "BACKUP"); err != nil {
		return fmt.Errorf("the server at %s gives no backup: %w", c.From, err)
	}
	out, err := os.CreateTemp(filepath.Dir(c.File), filepath.Base(c.File)+".*.new")
	if err != nil {
		return fmt.Errorf("create the backup: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	size := int64(0)
	for {
		part, err := ask("RAFT", "BACKUP", "READ")
		if errors.Is(err, errNil) {
			break
		}
		if err != nil {
			return fmt.Errorf("read the backup from %s: %w", c.From, err)
		}
		if _, err := io.WriteString(out, part); err != nil {
			return fmt.Errorf("write the backup: %w", err)
		}
		size += int64(len(part))
	}
	info, err := sealBackup(out, c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "copied the state of cluster %s to %s and verified it: %d bytes, %d keys, up to entry %d, latest decision %s\n",
		info.Cluster, c.File, size, info.Keys, info.Index, time.Unix(0, info.Latest).UTC().Format(time.RFC3339))
	return err
}

// sealBackup verifies what was written and gives it its name.
func sealBackup(f *os.File, dest string) (info cluster.BackupInfo, err error) {
	if err := f.Sync(); err != nil {
		return info, fmt.Errorf("write the backup: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return info, err
	}
	if info, err = cluster.CheckBackup(f); err != nil {
		return info, fmt.Errorf("the backup does not read as it was sent: %w", err)
	}
	if err := os.Link(f.Name(), dest); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return info, fmt.Errorf("the backup %s is there already and is not replaced", dest)
		}
		if err := os.Rename(f.Name(), dest); err != nil {
			return info, fmt.Errorf("name the backup: %w", err)
		}
	}
	return info, nil
}

// restoreCommand is `stint restore FILE`.
type restoreCommand struct {
	File string `arg:"" help:"Backup that stint backup has written, of either kind." example:"./backup.stint"`
	Dir  string `help:"Folder that the server is to be started with. It must hold no state." default:"./stint-data" placeholder:"DIR"`
}

func (c *restoreCommand) run(w io.Writer) error {
	lock, err := persist.LockDir(c.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	state, raftLog, err := persist.Holds(c.Dir)
	if err != nil {
		return err
	}
	dest := filepath.Join(c.Dir, cluster.ImportFile)
	if _, err := os.Lstat(dest); err == nil || state || raftLog {
		return fmt.Errorf("the folder %s holds a state already: choose an empty one with --dir", c.Dir)
	}
	if info, err := os.Stat(c.File); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, so it is no backup", c.File)
	}
	in, err := os.Open(c.File)
	if err != nil {
		return fmt.Errorf("open the backup: %w", err)
	}
	defer in.Close()
	if !isClusterBackup(in) {
		// The copy of a single node's state file.
		if err := lock.Release(); err != nil {
			return err
		}
		info, err := persist.Backup(c.File, filepath.Join(c.Dir, persist.FileName))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "restored %s into %s: %d changes, last flush %s; start the server with --dir %s, and with --durability strict to begin a cluster of it\n",
			c.File, c.Dir, info.Changes, info.Saved.UTC().Format(time.RFC3339), c.Dir)
		return err
	}
	out, err := os.CreateTemp(c.Dir, cluster.ImportFile+".*.new")
	if err != nil {
		return fmt.Errorf("restore the backup: %w", err)
	}
	defer os.Remove(out.Name())
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("restore the backup: %w", err)
	}
	info, err := sealBackup(out, dest)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "restored %s into %s: %d keys, latest decision %s; start a server with --durability strict --dir %s, or the node of a new cluster that is to bring the state along\n",
		c.File, c.Dir, info.Keys, time.Unix(0, info.Latest).UTC().Format(time.RFC3339), c.Dir)
	return err
}

// isClusterBackup looks at the first bytes of a file.
func isClusterBackup(f *os.File) bool {
	begin := make([]byte, len(cluster.BackupMagic))
	n, _ := f.ReadAt(begin, 0)
	return string(begin[:n]) == cluster.BackupMagic
}

// inspectClusterBackup describes a backup of a cluster; done is false if path is
// something else.
func inspectClusterBackup(path string, w io.Writer) (done bool, err error) {
	// To open a pipe would wait for who writes into it.
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return false, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	if !isClusterBackup(f) {
		return false, nil
	}
	info, err := cluster.CheckBackup(bufio.NewReader(f))
	if err != nil {
		return true, fmt.Errorf("%s: %w", path, err)
	}
	_, err = fmt.Fprintf(w, "%s is the backup of a cluster, and whole\ncluster           %s\nkeys              %d\nbytes of keys     %d\nlast entry        %d\nlatest decision   %s\n",
		path, info.Cluster, info.Keys, info.Bytes, info.Index, time.Unix(0, info.Latest).UTC().Format(time.RFC3339Nano))
	return true, err
}
