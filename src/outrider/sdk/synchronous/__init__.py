"""The synchronous client, generated from `outrider.sdk.asynchronous`: change that one."""
