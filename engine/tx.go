package engine

import (
	"github.com/stint-dev/stint/engine/internal/table"
	"github.com/stint-dev/stint/engine/limit"
)

// Tx is a transaction: reads, writes and decisions at one time, on the keys of
// the selected database. Begin makes one, BeginInto makes one again without
// allocating; it belongs to one goroutine, and End releases what it holds.
//
// What a Tx reads and writes goes through a backing. The direct backing locks
// the shard of the key at hand and writes through: it is all that commands on
// single keys need. A transaction that spans several keys, or that must be
// agreed on before it counts, will hold its writes back in another one.
type Tx struct {
	b   backing
	ks  *Keyspace
	now int64
	db  uint8

	// v is the value found last. It lives here, not on a stack, because a
	// pointer to it goes through an interface and would be allocated.
	v limit.Value

	direct direct
}

// backing is where a transaction's reads come from and its writes go. Each
// write is to the key of the last find.
type backing interface {
	// find puts the value under key at the transaction's time into tx.v: no
	// value if there is none or it is full. With decide, the time counts as
	// one of a decision and may first be moved on to the latest seen.
	find(tx *Tx, key []byte, decide bool)
	// put stores tx.v, which is not full. ErrOOM leaves all as it was.
	put(tx *Tx, key []byte) error
	// putLog applies a change to the sliding log, made if there is none, and
	// stores its limit. ErrOOM leaves all as it was.
	putLog(tx *Tx, key []byte, p limit.Params, c limit.LogChange) error
	// relieve frees memory after ErrOOM, wherever it is held by keys that are
	// full. It lets go of locks: the decision has to be made again, and is
	// worth it if it returns true.
	relieve(tx *Tx) bool
	// remove forgets the key; it reports nothing as the caller knows.
	remove(tx *Tx, key []byte)
	// count counts a decision, of the key of the last find.
	count(allowed bool)
	// release lets go of locks.
	release()
}

// Begin starts a transaction at time now, unix ns within 0 … limit.MaxTime,
// or the latest seen if that is later, on database 0.
func (ks *Keyspace) Begin(now int64) *Tx {
	tx := new(Tx)
	ks.BeginInto(tx, now)
	return tx
}

// BeginInto is Begin with the caller's memory. A Tx must not be copied.
func (ks *Keyspace) BeginInto(tx *Tx, now int64) {
	tx.ks = ks
	tx.direct.ks = ks
	tx.b = &tx.direct
	tx.db = 0
	tx.now = min(max(now, ks.latest.Load()), limit.MaxTime)
}

// Now is the transaction's time, unix ns. Reading or deciding on a key moves it
// on to the latest time seen, if another transaction has decided at a later one
// meanwhile.
func (tx *Tx) Now() int64 { return tx.now }

// Select changes the database: 0 to Databases-1.
func (tx *Tx) Select(db uint8) { tx.db = db }

// End releases the locks. The Tx may be used on; it locks again.
func (tx *Tx) End() { tx.b.release() }

// direct is the backing of single-key commands on a single node: it holds the
// lock of one shard, that of the last key, or those of the keys announced, and
// writes through.
type direct struct {
	ks    *Keyspace
	sh    *shard // locked; nil when none is
	hash  uint64
	ref   table.Ref
	ahead ahead
}

// locate locks the key's shard, settles the transaction's time and finds the
// key's record. It returns the table, nil if the shard has none for the
// database; then d.ref is table.NoRef.
func (d *direct) locate(tx *Tx, key []byte, decide bool) *table.Table {
	ks := d.ks
	if !d.announced(key) {
		d.hash = ks.hash(key)
		if sh := ks.shardOf(d.hash); d.sh != sh {
			d.release()
			sh.mu.Lock()
			d.sh = sh
		}
	}
	sh := d.sh
	// The latest time seen may have moved on since the transaction began. It
	// must be looked at under the lock: Sweep forgets what is full by then.
	if latest := ks.latest.Load(); latest >= tx.now {
		tx.now = latest
	} else if decide {
		ks.Advance(tx.now)
	}
	t := sh.tables[tx.db]
	d.ref = table.NoRef
	if t != nil {
		d.ref = t.Find(d.hash, key)
	}
	return t
}

func (d *direct) find(tx *Tx, key []byte, decide bool) {
	d.read(tx, d.locate(tx, key, decide))
}

// read puts what locate found into tx.v.
func (d *direct) read(tx *Tx, t *table.Table) {
	if d.ref == table.NoRef {
		tx.v = limit.Value{}
		return
	}
	t.Read(d.ref, &tx.v)
	if tx.v.Expiry() <= tx.now {
		tx.v = limit.Value{}
	}
}

// write runs f on the table of the transaction's database in the locked shard,
// which is made when it is first written to.
func (d *direct) write(tx *Tx, f func(*table.Table) error) error {
	t := d.sh.tables[tx.db]
	if t != nil {
		t.SetNow(tx.now) // what is full by now may make room
		return refusal(f(t))
	}
	t = d.ks.newTable()
	err := f(t)
	if err != nil {
		t.Close() // nothing is left of what is refused
		return refusal(err)
	}
	d.sh.tables[tx.db] = t
	return nil
}

func (d *direct) put(tx *Tx, key []byte) error {
	return d.write(tx, func(t *table.Table) error { return t.Put(d.hash, key, d.ref, &tx.v) })
}

func (d *direct) putLog(tx *Tx, key []byte, p limit.Params, c limit.LogChange) error {
	if tx.v.Kind == limit.None {
		// What is stored has run out: the change is to an empty log.
		d.remove(tx, key)
	}
	return d.write(tx, func(t *table.Table) error { return t.PutLog(d.hash, key, d.ref, p, c) })
}

// refusal is the error for a table's.
func refusal(err error) error {
	switch err {
	case nil:
		return nil
	case table.ErrKey:
		return ErrKey
	}
	return ErrOOM
}

func (d *direct) remove(tx *Tx, _ []byte) {
	if d.ref != table.NoRef {
		d.sh.tables[tx.db].Delete(d.hash, d.ref, true)
		d.ref = table.NoRef
	}
}

func (d *direct) relieve(tx *Tx) bool {
	d.release()
	return d.ks.relieve(tx.now)
}

func (d *direct) count(allowed bool) {
	if allowed {
		d.sh.allowed++
	} else {
		d.sh.refused++
	}
}

func (d *direct) release() {
	if d.ahead.held > 0 {
		d.drop()
	} else if d.sh != nil {
		d.sh.mu.Unlock()
		d.sh = nil
	}
}
