package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// warmConns are as many as the hot statements may use at once: turns, materialize and record.
const warmConns = turnsAtOnce + 2

const warmTimeout = 5 * time.Second

// warm plans the hot statements on the connections that will run them, before there is work: over partitioned tables that
// takes a new session a hundred times as long as what is done with the plan, and deliveries would wait for it. It is of no
// consequence if it fails.
func (d *Dispatcher) warm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, warmTimeout)
	defer cancel()
	var conns []*pgxpool.Conn
	defer func() {
		for _, conn := range conns {
			conn.Release()
		}
	}()
	for range warmConns {
		conn, err := d.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	errs := make([]error, len(conns))
	var warming sync.WaitGroup
	for i, conn := range conns {
		warming.Go(func() {
			batch := &pgx.Batch{}
			queueLocks(batch, nil)
			queueSuccesses(batch, nil)
			d.queueClaim(batch, nil)
			errs[i] = conn.SendBatch(ctx, batch).Close()
			if errs[i] == nil {
				rows, err := conn.Query(ctx, insertEventsQuery, insertArgs(nil)...)
				if err == nil {
					rows.Close()
					err = rows.Err()
				}
				errs[i] = err
			}
		})
	}
	warming.Wait()
	return errors.Join(errs...)
}
