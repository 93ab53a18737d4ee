//! Promises about which RDMA adapter a connection uses. They apply only to `verbs`; as for all of
//! its promises, the environment variables that `pair.rs` reads name the adapters.

mod verbs {
    use rackscan_fabric::{Address, ConnectError, DeviceError, ListenError, Listener, Operation, connect};

    use crate::pair::{TestWire, cluster_key, fresh_address, listen, message, run, seen_by_caller, soon};

    fn with_device(address: &Address, name: Option<&str>) -> Address {
        match address {
            Address::Verbs { host, port, .. } => {
                Address::Verbs { device: name.map(str::to_owned), host: host.clone(), port: *port }
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_device_that_does_not_exist_is_named_with_those_that_do() {
        let Address::Verbs { device: Some(ours), .. } = fresh_address(TestWire::Verbs) else { panic!() };
        let check = |error: &DeviceError| match error {
            DeviceError::Unknown { device, existing } => {
                assert!(device == "nosuch0" && existing.contains(&ours), "{error}");
            }
            other => panic!("{other}"),
        };
        let refusal =
            Listener::bind(&with_device(&fresh_address(TestWire::Verbs), Some("nosuch0")), &cluster_key());
        let Err(ListenError::Device { source, .. }) = refusal else { panic!("{refusal:?}") };
        check(&source);
        let listener = listen(TestWire::Verbs);
        let refusal = connect(&with_device(listener.address(), Some("nosuch0")), &cluster_key(), soon());
        let Err(ConnectError::Device { source, .. }) = refusal else { panic!("{refusal:?}") };
        check(&source);
    }

    #[test]
    fn without_a_name_the_device_that_has_the_address_is_used() {
        // The listener's side finds its adapter by the called address, the caller's side by the
        // address that it calls from.
        for named_caller in [true, false] {
            let nameless = with_device(&fresh_address(TestWire::Verbs), None);
            let mut listener = Listener::bind(&nameless, &cluster_key()).expect("bind");
            let called = match named_caller {
                true => seen_by_caller(listener.address()),
                false => listener.address().clone(),
            };
            let mut caller = connect(&called, &cluster_key(), soon()).expect("connect");
            let mut accepted = listener.accept_until(soon()).expect("accept").expect("in time");
            assert!(run(&mut caller, Operation::Send { bytes: b"found" }).is_ok());
            assert_eq!(message(&mut accepted), b"found");
        }
    }
}
