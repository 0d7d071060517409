package io.apipay;

/** Parameters of a recovery. */
public final class RecoverParams extends Params {
    /**
     * The required parameters.
     *
     * @param since from when on, in Unix seconds
     */
    public RecoverParams(long since) {
        set("since", since);
    }
}
