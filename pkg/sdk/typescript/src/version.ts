/** The SDK's version, sent in User-Agent. */
export const VERSION = "1.0.0";
