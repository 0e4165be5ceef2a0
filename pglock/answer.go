package pglock

import "context"

// answer answers that the process is alive, if it was asked. It returns whether the attempt waits in the queue.
func (a *attempt) answer(ctx context.Context) (waits bool, err error) {
	_, rows, err := a.b.exec(ctx, do(a.b.sql.answer, a.req.Owner))
	return rows > 0, err
}

// answerNow answers in the background. If the waiter was removed, because the answer is too late, or if there is no
// answer to the statement, the attempt polls: that enters it again, or answers.
func (a *attempt) answerNow() {
	a.once(&a.answering, func() {
		b := a.b
		waits, err := a.answer(b.ctx)
		b.mu.Lock()
		defer b.mu.Unlock()
		if (err != nil || !waits) && b.attempts[a.req.Owner] == a && (a.state == waiting || a.state == revoked) {
			a.timer.Reset(0)
		}
	})
}
